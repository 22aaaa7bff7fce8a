"""A function of PTX into one of C++."""

import re
import struct

from .arithmetic import Arithmetic
from .control import Control
from .memory import Memory
from .parser import W, Err, S, U, commas, gname, mang, parse_var, split

SPEC = {
    '%laneid': 't->lane',
    '%warpid': 't->warp',
    '%nwarpid': '((t->ntid[0]*t->ntid[1]*t->ntid[2]+31)/32)',
    '%smid': '(t->ctaid[0]%132)',
    '%nsmid': '132u',
    '%gridid': 't->gridid',
    '%lanemask_eq': '(1u<<t->lane)',
    '%lanemask_lt': '((1u<<t->lane)-1)',
    '%lanemask_le': '((2u<<t->lane)-1)',
    '%lanemask_gt': '(~((2u<<t->lane)-1))',
    '%lanemask_ge': '(~((1u<<t->lane)-1))',
    '%clock': '((u32)rt_clock())',
    '%clock_hi': '((u32)(rt_clock()>>32))',
    '%clock64': 'rt_clock()',
    '%globaltimer': 'rt_clock()',
    '%globaltimer_lo': '((u32)rt_clock())',
    '%globaltimer_hi': '((u32)(rt_clock()>>32))',
    '%dynamic_smem_size': 't->dynsm',
    '%total_smem_size': 't->totsm',
    '%envreg1': 't->envreg1',
    '%envreg2': 't->envreg2',
    '%cluster_ctarank': '0u',
    '%cluster_nctarank': '1u',
    '%is_explicit_cluster': 'false',
    'WARP_SZ': '32u',
    '%reserved_smem_offset_0': '0u',
}
for k, f in (('tid', 'tid'), ('ntid', 'ntid'), ('ctaid', 'ctaid'), ('nctaid', 'nctaid')):
    for i, x in enumerate('xyz'):
        SPEC['%%%s.%s' % (k, x)] = 't->%s[%d]' % (f, i)
for x in 'xyz':
    SPEC['%cluster_ctaid.' + x] = '0u'
    SPEC['%cluster_nctaid.' + x] = '1u'
for i, x in enumerate('xyz'):
    SPEC['%clusterid.' + x] = 't->ctaid[%d]' % i
    SPEC['%nclusterid.' + x] = 't->nctaid[%d]' % i


class Gen(Memory, Arithmetic, Control):
    def __init__(g, mod, f, entry):
        g.m = mod
        g.f = f
        g.E = entry
        g.out = []
        g.scopes = [{}]
        g.ids = 0
        g.labels = {}
        g.tables = {}

    def reg(g, n):
        for s in reversed(g.scopes):
            if n in s:
                return s[n]

    def isreg(g, n):
        r = g.reg(n)
        return r and r[0] == 'reg'

    def addrsym(g, n):
        """returns (space, expr u64) of symbol"""
        r = g.reg(n)
        if r:
            if r[0] == 'local':
                return ('local', '(u64)%s' % r[2])
            if r[0] == 'param':
                return ('param', '(u64)%s' % r[2])
            if r[0] == 'shared':
                return ('shared', '(u64)%d' % g.E.shoff[r[2]])
        if n in g.E.shoff:
            return ('shared', '(u64)%d' % g.E.shoff[n])
        if n in g.m.shared:
            raise Err('shared sym w/o offset ' + n)
        if n in g.m.globals:
            g.E.useglob.add(n)
            return ('global', '(u64)%s' % gname(g.m, n))
        if n in g.m.funcs:
            return ('func', '%sull' % hex(g.m.ftoken(n)))
        raise Err('unknown symbol ' + n)

    def op(g, o, ty):
        w = W[ty] if ty else 32
        o = o.strip()
        if ty == 'pred':
            if o.startswith('!'):
                return '(!%s)' % g.op(o[1:], 'pred')
            if g.isreg(o):
                return g.reg(o)[2]
            return '((bool)(%s))' % o
        r = g.reg(o)
        if r and r[0] == 'reg':
            if r[1] == w:
                return r[2]
            return '((%s)%s)' % (U(w), r[2])
        if o in SPEC:
            return '((%s)%s)' % (U(w), SPEC[o])
        if re.fullmatch(r'0[fF][0-9a-fA-F]{8}', o):
            b = int(o[2:], 16)
            if ty == 'f64':
                b = struct.unpack('<Q', struct.pack('<d', struct.unpack('<f', struct.pack('<I', b))[0]))[0]
            return '((%s)0x%xull)' % (U(w), b)
        if re.fullmatch(r'0[dD][0-9a-fA-F]{16}', o):
            b = int(o[2:], 16)
            if ty == 'f32':
                b = struct.unpack('<I', struct.pack('<f', struct.unpack('<d', struct.pack('<Q', b))[0]))[0]
            return '((%s)0x%xull)' % (U(w), b)
        if re.fullmatch(r'-?\s*\d+\.\d*([eE][-+]?\d+)?', o):
            return 'B((%s)%s)' % ('f64' if ty == 'f64' else 'f32', o)
        if re.fullmatch(r'-?\s*(0[xX][0-9a-fA-F]+|\d+)U?', o):
            s = o.rstrip('U').replace(' ', '')
            neg = s.startswith('-')
            s = s.lstrip('-')
            v = int(s, 16) if s[:2] in ('0x', '0X') else int(s, 8) if len(s) > 1 and s[0] == '0' else int(s)
            if neg:
                v = -v
            return '((%s)0x%xull)' % (U(w), v & ((1 << min(w, 64)) - 1))
        m = re.fullmatch(r'([\w$%.]+)\s*([+-])\s*(\d+)', o)
        if m:
            return '((%s)(%s%s%s))' % (U(w), g.addrsym(m.group(1))[1], m.group(2), m.group(3))
        if re.fullmatch(r'[\w$%.]+', o):
            return '((%s)%s)' % (U(w), g.addrsym(o)[1])
        raise Err('operand ' + o)

    def s(g, o, ty):
        return '((%s)%s)' % (S(W[ty]), g.op(o, ty))

    def v(g, o, ty):  # typed value
        if ty[0] == 's':
            return g.s(o, ty)
        if ty == 'f32':
            return 'F(%s)' % g.op(o, ty)
        if ty == 'f64':
            return 'D(%s)' % g.op(o, ty)
        if ty == 'f16':
            return 'H(%s)' % g.op(o, ty)
        if ty == 'bf16':
            return 'BF(%s)' % g.op(o, ty)
        return g.op(o, ty)

    def fv(g, o, ty, ftz):
        x = g.v(o, ty)
        return 'FZ(%s)' % x if ftz and ty == 'f32' else x

    def set(g, d, e, ty=None, signed=False):
        d = d.strip()
        if d == '_':
            return '(void)(%s);' % e
        r = g.reg(d)
        if not (r and r[0] == 'reg'):
            raise Err('dst ' + d)
        if r[1] == 1:
            return '%s=(bool)(%s);' % (r[2], e)
        if signed and ty and W[ty] < r[1]:
            return '%s=(%s)(%s)(%s)(%s);' % (r[2], U(r[1]), S(r[1]), S(W[ty]), e)
        if ty and W[ty] < r[1]:
            return '%s=(%s)(%s)(%s);' % (r[2], U(r[1]), U(W[ty]), e)
        return '%s=(%s)(%s);' % (r[2], U(r[1]), e)

    def setf(g, d, e, ty, ftz=False, sat=False):
        if sat:
            e = 'SAT(%s)' % e
        if ty == 'f32':
            if ftz:
                e = 'FZ(%s)' % e
            return g.set(d, 'B((f32)(%s))' % e, ty)
        if ty == 'f64':
            return g.set(d, 'B((f64)(%s))' % e, ty)
        if ty == 'f16':
            return g.set(d, 'HB(%s)' % e, ty)
        if ty == 'bf16':
            return g.set(d, 'BFB(%s)' % e, ty)
        raise Err('setf ' + ty)

    def addr(g, o, space):
        """memory operand -> (space, expr)"""
        o = o.strip()
        assert o[0] == '[' and o[-1] == ']', o
        o = o[1:-1].strip()
        off = 0
        m = re.fullmatch(r'([\w$%.]+)\s*\+\s*(-?\s*(?:0x[0-9a-fA-F]+|\d+))', o) or re.fullmatch(
            r'([\w$%.]+)\s*(-\s*\d+)', o
        )
        if m:
            o = m.group(1)
            off = int(m.group(2).replace(' ', ''), 0)
        r = g.reg(o)
        if r and r[0] == 'reg':
            e = '(u64)%s' % r[2]
            sp = None
        elif re.fullmatch(r'-?\d+|0x[0-9a-fA-F]+', o):
            e = '(u64)%s' % o
            sp = None
        else:
            sp, e = g.addrsym(o)
        if off:
            e = '(%s+(s64)%d)' % (e, off)
        return e

    def emit(g, s):
        g.out.append(s)

    def flags(g, kind, st, size, scope=0):
        """what the watch mode is told of an access: the W_ bits of race.h"""
        strong = bool(st & {'volatile', 'relaxed', 'acquire', 'release', 'acq_rel', 'mmio'}) or kind == 2
        gpu = strong and not st & {'cta', 'cluster'} and scope == 0
        return (
            kind
            | 4 * strong
            | 8 * gpu
            | 16 * ('nc' in st)
            | (max(size, 1).bit_length() - 1) << 5
            | 256 * bool(st & {'acquire', 'acq_rel'})
            | 512 * bool(st & {'release', 'acq_rel'})
        )

    def mem(g, o, space, nbytes, al, line, kind, fl=None):
        """fl: flags for the watch mode, None: the caller tells it"""
        e = g.addr(o, space)
        g.ids += 1
        a = 'a%d' % g.ids
        if space in ('param', 'local', 'const'):
            fl = None
        w = '' if fl is None else 'WA(t,%s,%d,%d,%d); ' % (a, nbytes, line, fl)
        if space == 'shared' or space == 'shared::cta' or space == 'shared::cluster':
            return (
                '{u64 %s=(u32)(%s); cksh<%d>(t,%s,%d,%d,%d); %s+=(u64)t->sh; %s'
                % (a, e, al, a, nbytes, line, kind, a, w),
                a,
            )
        if space in ('param', 'local'):
            return '{u64 %s=%s; ' % (a, e), a
        return '{u64 %s=%s; ck<%d>(t,%s,%d,%d,%d); %s' % (a, e, al, a, nbytes, line, kind, w), a

    def body(g):
        src = g.f.body
        toks = list(split(src, g.f.line - g.E.base))  # lines are relative to the kernel's
        # label scoping + positions
        stack = [0]
        nsc = 0
        g.lab = {}
        seq = []
        for i, (k, x, l) in enumerate(toks):
            if k == 'open':
                nsc += 1
                stack.append(nsc)
            elif k == 'close':
                stack.pop()
            elif k == 'label':
                g.lab[(stack[-1], x)] = (i, 'L%d_%s' % (stack[-1], mang(x)))
            seq.append(tuple(stack))
        g.seq = seq
        for i, (k, x, l) in enumerate(toks):
            g.i = i
            g.line = l
            if k == 'open':
                g.emit('{')
                g.scopes.append({})
            elif k == 'close':
                g.emit('}')
                g.scopes.pop()
            elif k == 'label':
                nx = toks[i + 1][1] if i + 1 < len(toks) else ''
                if nx.startswith('.branchtargets') or nx.startswith('.callprototype'):
                    g.tables[x] = nx
                else:
                    g.emit('%s:;' % g.lab[(seq[i][-1], x)][1])
            else:
                try:
                    g.stmt(x, l)
                except Err as e:
                    raise Err('line %d: %s: %s' % (l, x, e))
                except (KeyError, IndexError, ValueError, AssertionError) as e:
                    raise Err('line %d: %s: %r' % (l, x, e))

    def goto(g, lbl):
        for sc in reversed(g.seq[g.i]):
            if (sc, lbl) in g.lab:
                p, n = g.lab[(sc, lbl)]
                return ('{TICK(t); goto %s;}' if p <= g.i else '{goto %s;}') % n
        raise Err('label ' + lbl)

    def stmt(g, x, l):
        if x.startswith('.'):
            if x.startswith('.reg'):
                m = re.match(r'\.reg\s*\.(\w+)\s+(.*)', x)
                if m.group(1) in ('v2', 'v4'):
                    raise Err('vector reg')
                w = W[m.group(1)]
                names = []
                for n in commas(m.group(2)):
                    mm = re.fullmatch(r'([\w$%]+)\s*<\s*(\d+)\s*>', n)
                    if mm:
                        names += ['%s%d' % (mm.group(1), i) for i in range(int(mm.group(2)))]
                    else:
                        names.append(n)
                for n in names:
                    g.scopes[-1][n] = ('reg', w, mang(n))
                init = '=0' if len(g.scopes) == 1 else ''
                used = [mang(n) for n in names if len(g.scopes) > 1 or n in g.usedregs]
                for k in range(0, len(used), 20):
                    g.emit('%s %s;' % (U(w), ','.join(u + init for u in used[k : k + 20])))
                return
            if re.match(r'\.(local|param)\b', x):
                v = parse_var(re.sub(r'^\.(local|param)', '', x))
                n = mang(v['name'])
                g.ids += 1
                n += '_%d' % g.ids
                g.scopes[-1][v['name']] = ('local' if x.startswith('.local') else 'param', v['size'], n)
                if len(g.scopes) == 1 or x.startswith('.local'):
                    g.out.insert(
                        g.top,
                        'alignas(%d) u8 %s[%d]; %s'
                        % (
                            max(16, v['align']),
                            n,
                            max(v['size'], 1),
                            'memset(%s,0xCB,sizeof %s);' % (n, n) if x.startswith('.local') else '',
                        ),
                    )
                else:
                    g.emit('alignas(16) u8 %s[%d];' % (n, max(v['size'], 1)))
                return
            if re.match(r'\.shared\b', x):
                v = parse_var(re.sub(r'^\.shared', '', x))
                g.scopes[-1][v['name']] = ('shared', v['size'], v['name'])
                return
            if x.startswith('.branchtargets') or x.startswith('.callprototype'):
                return
            raise Err('directive')
        pre = ''
        m = re.match(r'@(!?)([\w%$]+)\s+(.*)$', x)
        if m:
            pre = 'if(%s%s)' % (m.group(1), g.reg(m.group(2))[2])
            x = m.group(3)
        m = re.match(r'([\w.:]+)\s*(.*)$', x)
        parts = m.group(1).split('.')
        rest = m.group(2)
        c = g.inst(parts[0], parts[1:], rest, l, x)
        g.emit('%s{%s}' % (pre, c) if pre else c)

    def inst(g, *instruction):
        for kind in (g.memory, g.arithmetic, g.control):
            text = kind(*instruction)
            if text is not None:
                return text
        return None
