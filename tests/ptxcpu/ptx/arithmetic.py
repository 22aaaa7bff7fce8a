"""Instructions that compute and compare: C++ of each, None for others."""

from .parser import TY, W, Err, S, U, commas

CMPI = {
    'eq': '==',
    'ne': '!=',
    'lt': '<',
    'le': '<=',
    'gt': '>',
    'ge': '>=',
    'lo': '<',
    'ls': '<=',
    'hi': '>',
    'hs': '>=',
}


class Arithmetic:
    def arithmetic(g, o, md, rest, l, x):
        ops = commas(rest)
        st = set(md)
        tys = [q for q in md if q in TY]
        ty = tys[-1] if tys else None
        ftz = 'ftz' in st
        sat = 'sat' in st
        rm = 1 if st & {'rz', 'rzi'} else 2 if st & {'rm', 'rmi'} else 3 if st & {'rp', 'rpi'} else 0
        if o in ('add', 'sub'):
            s_ = '+' if o == 'add' else '-'
            if ty in ('f16', 'bf16'):
                return g.setf(ops[0], '%s%s%s' % (g.v(ops[1], ty), s_, g.v(ops[2], ty)), ty, False, sat)
            if ty in ('f16x2', 'bf16x2'):
                return g.x2(ops, ty, lambda a: '%s%s%s' % (a[0], s_, a[1]), sat)
            if ty in ('f32', 'f64'):
                a, b = g.fv(ops[1], ty, ftz), g.fv(ops[2], ty, ftz)
                e = (
                    '%s%s%s' % (a, s_, b)
                    if rm == 0
                    else 'rt_bin%d(%d,%s,%s,%d)' % (W[ty], 0 if o == 'add' else 1, a, b, rm)
                )
                return g.setf(ops[0], e, ty, ftz, sat)
            if 'cc' in st:
                w = W[ty]
                a, b = g.op(ops[1], ty), g.op(ops[2], ty)
                return '{%s q; CC=__builtin_%s_overflow(%s,%s,&q); %s}' % (U(w), o, a, b, g.set(ops[0], 'q', ty))
            if sat:
                return g.set(ops[0], '%sSAT<%s>(%s,%s)' % (o.upper(), S(W[ty]), g.s(ops[1], ty), g.s(ops[2], ty)), ty)
            return g.set(ops[0], '%s%s%s' % (g.op(ops[1], ty), s_, g.op(ops[2], ty)), ty, ty[0] == 's')
        if o in ('addc', 'subc'):
            w = W[ty]
            W2 = 'u128' if w == 64 else 'u64'
            a, b = g.op(ops[1], ty), g.op(ops[2], ty)
            if o == 'addc':
                return '{%s q=(%s)%s+%s+CC; %s %s}' % (
                    W2,
                    W2,
                    a,
                    b,
                    'CC=(q>>%d)&1;' % w if 'cc' in st else '',
                    g.set(ops[0], '(%s)q' % U(w), ty),
                )
            return '{%s q=(%s)%s-%s-CC; %s %s}' % (
                W2,
                W2,
                a,
                b,
                'CC=(q>>%d)&1;' % w if 'cc' in st else '',
                g.set(ops[0], '(%s)q' % U(w), ty),
            )
        if o in ('mul', 'mad', 'mul24', 'mad24', 'madc'):
            acc = o in ('mad', 'mad24', 'madc')
            if ty in ('f16', 'bf16'):
                return g.setf(ops[0], '%s*%s' % (g.v(ops[1], ty), g.v(ops[2], ty)), ty, False, sat)
            if ty in ('f16x2', 'bf16x2'):
                return g.x2(ops, ty, lambda a: '%s*%s' % (a[0], a[1]), sat)
            if ty in ('f32', 'f64'):
                if acc:
                    return g.inst('fma', md, rest, l, x)
                a, b = g.fv(ops[1], ty, ftz), g.fv(ops[2], ty, ftz)
                return g.setf(
                    ops[0], '%s*%s' % (a, b) if rm == 0 else 'rt_bin%d(2,%s,%s,%d)' % (W[ty], a, b, rm), ty, ftz, sat
                )
            w = W[ty]
            sg = ty[0] == 's'
            if '24' in o:
                f = (
                    (lambda q: '((s64)((s32)((u32)%s<<8)>>8))' % g.op(q, ty))
                    if sg
                    else (lambda q: '((u64)(%s&0xffffffu))' % g.op(q, ty))
                )
                e = '(u32)((%s*%s)%s)' % (f(ops[1]), f(ops[2]), '>>16' if 'hi' in st else '')
                if acc:
                    e = '%s+%s' % (e, g.op(ops[3], ty))
                return g.set(ops[0], e, ty)
            if 'wide' in st:
                w2 = '%s%d' % (ty[0], 2 * w)
                cast = S(2 * w) if sg else U(2 * w)
                e = '(%s)%s*(%s)%s' % (cast, g.v(ops[1], ty), cast, g.v(ops[2], ty))
                e = '(%s)(%s)' % (U(2 * w), e)
                if acc:
                    e = '%s+%s' % (e, g.op(ops[3], w2))
                return g.set(ops[0], e, w2)
            if 'hi' in st:
                cast = S(2 * w) if sg else U(2 * w)
                e = '(%s)(((%s)%s*(%s)%s)>>%d)' % (U(w), cast, g.v(ops[1], ty), cast, g.v(ops[2], ty), w)
            else:
                e = '(%s)((%s)%s*(%s)%s)' % (
                    U(w),
                    'u64' if w < 64 else 'u64',
                    g.op(ops[1], ty),
                    'u64',
                    g.op(ops[2], ty),
                )
            if acc and sat and 'hi' in st:
                return g.set(ops[0], 'ADDSAT<s32>((s32)(%s),%s)' % (e, g.s(ops[3], ty)), ty)
            if acc and ('cc' in st or o == 'madc'):
                W2 = 'u128' if w == 64 else 'u64'
                return '{%s q=(%s)(%s)+%s%s; %s %s}' % (
                    W2,
                    W2,
                    e,
                    g.op(ops[3], ty),
                    '+CC' if o == 'madc' else '',
                    'CC=(q>>%d)&1;' % w if 'cc' in st else '',
                    g.set(ops[0], '(%s)q' % U(w), ty),
                )
            if acc:
                e = '%s+%s' % (e, g.op(ops[3], ty))
            return g.set(ops[0], e, ty, sg)
        if o == 'fma':
            relu = 'relu' in st
            if ty in ('f16', 'bf16'):
                e = '(f64)%s*(f64)%s+(f64)%s' % tuple(g.v(q, ty) for q in ops[1:4])
                if sat:
                    e = 'SAT(%s)' % e
                if relu:
                    e = 'FMAX((f64)(%s),0.0)' % e
                return g.set(ops[0], '%s(%s)' % ('HBD' if ty == 'f16' else 'BFBD', e), ty)
            if ty in ('f16x2', 'bf16x2'):
                return g.x2(
                    ops,
                    ty,
                    lambda a: ('FMAX((f64)%s*(f64)%s+(f64)%s,0.0)' if relu else '(f64)%s*(f64)%s+(f64)%s') % tuple(a),
                    sat,
                    dbl=True,
                )
            a = [g.fv(q, ty, ftz) for q in ops[1:4]]
            f = 'f' if ty == 'f32' else ''
            e = (
                '__builtin_fma%s(%s)' % (f, ','.join(a))
                if rm == 0
                else 'rt_fma%s_rm(%s,%d)' % ('' if ty == 'f32' else 'd', ','.join(a), rm)
            )
            return g.setf(ops[0], e, ty, ftz, sat)
        if o == 'div':
            if ty in ('f32', 'f64'):
                a, b = g.fv(ops[1], ty, ftz), g.fv(ops[2], ty, ftz)
                return g.setf(
                    ops[0], '%s/%s' % (a, b) if rm == 0 else 'rt_bin%d(3,%s,%s,%d)' % (W[ty], a, b, rm), ty, ftz
                )
            c = S(W[ty]) if ty[0] == 's' else U(W[ty])
            return g.set(ops[0], 'DIV<%s>(%s,%s)' % (c, g.v(ops[1], ty), g.v(ops[2], ty)), ty, ty[0] == 's')
        if o == 'rem':
            c = S(W[ty]) if ty[0] == 's' else U(W[ty])
            return g.set(ops[0], 'REM<%s>(%s,%s)' % (c, g.v(ops[1], ty), g.v(ops[2], ty)), ty, ty[0] == 's')
        if o in ('abs', 'neg'):
            if ty in ('f16', 'bf16', 'f16x2', 'bf16x2'):
                mk = {16: (0x7FFF, 0x8000), 32: (0x7FFF7FFF, 0x80008000)}[W[ty]]
                return g.set(
                    ops[0],
                    '%s%s0x%xu' % (g.op(ops[1], ty), '&' if o == 'abs' else '^', mk[0 if o == 'abs' else 1]),
                    ty,
                )
            if ty in ('f32', 'f64'):
                a = g.fv(ops[1], ty, ftz)
                w = W[ty]
                m = '0x%xull' % ((1 << (w - 1)) - 1 if o == 'abs' else 1 << (w - 1))
                return g.set(ops[0], 'B(%s)%s(%s)%s' % (a, '&' if o == 'abs' else '^', U(w), m), ty)
            a = g.op(ops[1], ty)
            e = '(%s)(0-(u64)%s)' % (U(W[ty]), a)
            if o == 'abs':
                e = '(%s<0?%s:%s)' % (g.s(ops[1], ty), e, a)
            return g.set(ops[0], e, ty, True)
        if o in ('min', 'max'):
            if ty in ('f16', 'bf16'):
                a = [g.v(q, ty) for q in ops[1:3]]
                e = 'F%s(%s,%s)' % (o.upper(), a[0], a[1])
                if 'NaN' in st:
                    e = 'NANP(%s,%s,%s)' % (e, a[0], a[1])
                return g.setf(ops[0], e, ty)
            if ty in ('f16x2', 'bf16x2'):
                return g.x2(
                    ops,
                    ty,
                    lambda a: (
                        'NANP(F%s(%s,%s),%s,%s)' % (o.upper(), a[0], a[1], a[0], a[1])
                        if 'NaN' in st
                        else 'F%s(%s,%s)' % (o.upper(), a[0], a[1])
                    ),
                    False,
                )
            if ty in ('f32', 'f64'):
                a = [g.fv(q, ty, ftz) for q in ops[1:]]
                e = 'F%s(%s,%s)' % (o.upper(), a[0], a[1])
                if len(a) == 3:
                    e = 'F%s(%s,%s)' % (o.upper(), e, a[2])
                if 'NaN' in st:
                    e = 'NANP(%s,%s,%s)' % (e, a[0], a[1])
                return g.setf(ops[0], e, ty, ftz)
            c = '<' if o == 'min' else '>'
            a, b = g.v(ops[1], ty), g.v(ops[2], ty)
            e = '(%s%s%s?%s:%s)' % (a, c, b, a, b)
            if 'relu' in st:
                e = '(%s<0?0:%s)' % (e, e)
            return g.set(ops[0], e, ty, ty[0] == 's')
        if o in ('and', 'or', 'xor'):
            c = {'and': '&', 'or': '|', 'xor': '^'}[o]
            return g.set(ops[0], '%s%s%s' % (g.op(ops[1], ty), c, g.op(ops[2], ty)), None if ty == 'pred' else ty)
        if o == 'not':
            return g.set(ops[0], ('!%s' if ty == 'pred' else '~%s') % g.op(ops[1], ty), None if ty == 'pred' else ty)
        if o == 'cnot':
            return g.set(ops[0], '%s==0?1:0' % g.op(ops[1], ty), ty)
        if o == 'shl':
            w = W[ty]
            return g.set(
                ops[0],
                '(%s>%d?0:(%s)((u64)%s<<%s))'
                % (g.op(ops[2], 'u32'), w - 1, U(w), g.op(ops[1], ty), g.op(ops[2], 'u32')),
                ty,
            )
        if o == 'shr':
            w = W[ty]
            n = g.op(ops[2], 'u32')
            if ty[0] == 's':
                return g.set(ops[0], '(%s>>(%s>%d?%d:%s))' % (g.s(ops[1], ty), n, w - 1, w - 1, n), ty, True)
            return g.set(ops[0], '(%s>%d?0:%s>>%s)' % (n, w - 1, g.op(ops[1], ty), n), ty)
        if o == 'shf':
            return g.set(
                ops[0],
                'SHF%s_(%s,%s)'
                % (
                    'L' if 'l' in st else 'R',
                    ','.join(g.op(q, 'b32') for q in ops[1:4]),
                    'true' if 'wrap' in st else 'false',
                ),
                'b32',
            )
        if o in ('setp', 'set'):
            cmp = md[0]
            bo = next((q for q in md if q in ('and', 'or', 'xor')), None)
            sty = ty
            if o == 'set':
                sty = tys[1]
            f = sty in ('f32', 'f64', 'f16', 'bf16')
            if sty in ('f16x2', 'bf16x2'):
                raise Err('setp x2')
            a, b = (g.fv(ops[1], sty, ftz), g.fv(ops[2], sty, ftz)) if f else (g.v(ops[1], sty), g.v(ops[2], sty))
            if f:
                if cmp == 'num':
                    e = '(%s==%s&&%s==%s)' % (a, a, b, b)
                elif cmp == 'nan':
                    e = '(%s!=%s||%s!=%s)' % (a, a, b, b)
                elif cmp[-1] == 'u' and cmp[:2] in CMPI:
                    base = cmp[:-1]
                    e = {
                        'eq': '!(%s<%s||%s>%s)' % (a, b, a, b),
                        'ne': '!(%s==%s)' % (a, b),
                        'lt': '!(%s>=%s)' % (a, b),
                        'le': '!(%s>%s)' % (a, b),
                        'gt': '!(%s<=%s)' % (a, b),
                        'ge': '!(%s<%s)' % (a, b),
                    }[base]
                elif cmp == 'ne':
                    e = '(%s<%s||%s>%s)' % (a, b, a, b)
                else:
                    e = '(%s%s%s)' % (a, CMPI[cmp], b)
            else:
                e = '(%s%s%s)' % (a, CMPI[cmp], b)
            if o == 'set':
                if bo:
                    p = g.op(ops[3], 'pred')
                    e = '(%s%s%s)' % (e, {'and': '&&', 'or': '||', 'xor': '!='}[bo], p)
                d = tys[0]
                return g.set(ops[0], '%s?%s:0' % (e, 'B(1.0f)' if d == 'f32' else '~(%s)0' % U(W[d])), d)
            ds = ops[0].split('|')
            r = '{bool q=%s; ' % e
            if bo:
                p = g.op(ops[3], 'pred')
                cc = {'and': '&&', 'or': '||', 'xor': '!='}[bo]
                r += 'bool p_=%s; ' % p
                r += g.set(ds[0], 'q%sp_' % cc)
                if len(ds) > 1:
                    r += g.set(ds[1], '(!q)%sp_' % cc)
            else:
                r += g.set(ds[0], 'q')
                if len(ds) > 1:
                    r += g.set(ds[1], '!q')
            return r + '}'
        if o == 'selp':
            return g.set(ops[0], '%s?%s:%s' % (g.op(ops[3], 'pred'), g.op(ops[1], ty), g.op(ops[2], ty)), ty)
        if o == 'slct':
            dt, ct = tys[0], tys[1]
            return g.set(ops[0], '%s>=0?%s:%s' % (g.fv(ops[3], ct, ftz), g.op(ops[1], dt), g.op(ops[2], dt)), dt)
        if o == 'popc':
            return g.set(ops[0], 'POPC(%s)' % g.op(ops[1], ty), 'u32')
        if o == 'clz':
            return g.set(ops[0], 'CLZ%d(%s)' % (W[ty], g.op(ops[1], ty)), 'u32')
        if o == 'brev':
            return g.set(ops[0], 'BREV%d(%s)' % (W[ty], g.op(ops[1], ty)), ty)
        if o == 'bfind':
            a = g.op(ops[1], ty)
            if ty[0] == 's':
                a = '(%s<0?~%s:%s)' % (g.s(ops[1], ty), a, a)
            return g.set(ops[0], 'BFINDU%d(%s,%s)' % (W[ty], a, 'true' if 'shiftamt' in st else 'false'), 'u32')
        if o == 'bfe':
            return g.set(
                ops[0],
                'BFE(%s,%s,%s,%d,%s)'
                % (
                    g.op(ops[1], ty),
                    g.op(ops[2], 'u32'),
                    g.op(ops[3], 'u32'),
                    W[ty],
                    'true' if ty[0] == 's' else 'false',
                ),
                ty,
            )
        if o == 'bfi':
            return g.set(
                ops[0],
                'BFI(%s,%s,%s,%s,%d)'
                % (g.op(ops[1], ty), g.op(ops[2], ty), g.op(ops[3], 'u32'), g.op(ops[4], 'u32'), W[ty]),
                ty,
            )
        if o == 'bmsk':
            return g.set(
                ops[0],
                'BMSK(%s,%s,%s)' % (g.op(ops[1], 'u32'), g.op(ops[2], 'u32'), 'true' if 'wrap' in st else 'false'),
                'u32',
            )
        if o == 'fns':
            return g.set(
                ops[0], 'FNS(%s,%s,%s)' % (g.op(ops[1], 'u32'), g.op(ops[2], 'u32'), g.s(ops[3], 's32')), 'u32'
            )
        if o == 'prmt':
            md_ = next((q for q in md if q in ('f4e', 'b4e', 'rc8', 'ecl', 'ecr', 'rc16')), None)
            a = ','.join(g.op(q, 'b32') for q in ops[1:4])
            return g.set(
                ops[0],
                (
                    'PRMTM(%s,%d)' % (a, ('f4e', 'b4e', 'rc8', 'ecl', 'ecr', 'rc16').index(md_))
                    if md_
                    else 'PRMT(%s)' % a
                ),
                'b32',
            )
        if o == 'lop3':
            return g.set(ops[0], 'LOP3(%s)' % ','.join(g.op(q, 'b32') for q in ops[1:5]), 'b32')
        if o == 'sad':
            return g.set(
                ops[0],
                '%s+(%s>%s?%s-%s:%s-%s)'
                % (
                    g.op(ops[3], ty),
                    g.v(ops[1], ty),
                    g.v(ops[2], ty),
                    g.op(ops[1], ty),
                    g.op(ops[2], ty),
                    g.op(ops[2], ty),
                    g.op(ops[1], ty),
                ),
                ty,
            )
        if o == 'dp4a':
            return g.set(
                ops[0],
                'DP4A(%s,%s,%s,%s,%s)'
                % (
                    g.v(ops[3], tys[1] if tys[0][0] == tys[1][0] == 'u' else 's32'),
                    g.op(ops[1], 'b32'),
                    g.op(ops[2], 'b32'),
                    'true' if tys[0][0] == 's' else 'false',
                    'true' if tys[1][0] == 's' else 'false',
                ),
                'u32',
            )
        if o == 'testp':
            a = g.v(ops[1], ty)
            return g.set(
                ops[0],
                {
                    'finite': 'std::isfinite(%s)',
                    'infinite': 'std::isinf(%s)',
                    'number': '!std::isnan(%s)',
                    'notanumber': 'std::isnan(%s)',
                    'normal': 'std::isnormal(%s)',
                    'subnormal': '(std::fpclassify(%s)==FP_SUBNORMAL)',
                }[md[0]]
                % a,
            )
        if o == 'copysign':
            w = W[ty]
            m = 1 << (w - 1)
            return g.set(ops[0], '(%s&0x%xull)|(%s&0x%xull)' % (g.op(ops[1], ty), m, g.op(ops[2], ty), m - 1), ty)
        if o in ('rcp', 'sqrt', 'rsqrt', 'ex2', 'lg2', 'sin', 'cos', 'tanh'):
            if ty in ('f16', 'f16x2', 'bf16', 'bf16x2'):
                fn = {'ex2': 'exp2f', 'tanh': 'tanhf'}[o]
                if ty in ('f16', 'bf16'):
                    return g.setf(ops[0], '%s(%s)' % (fn, g.v(ops[1], ty)), ty)
                return g.x2(ops, ty, lambda a: '%s(%s)' % (fn, a[0]), False)
            a = g.fv(ops[1], ty, ftz)
            f = 'f' if ty == 'f32' else ''
            if o == 'rcp':
                e = '%s/%s' % ('1.0' + f, a) if rm == 0 else 'rt_bin%d(3,1.0,%s,%d)' % (W[ty], a, rm)
            elif o == 'sqrt':
                e = '__builtin_sqrt%s(%s)' % (f, a) if rm == 0 else 'rt_bin%d(4,%s,0,%d)' % (W[ty], a, rm)
            elif o == 'rsqrt':
                e = '%s/__builtin_sqrt%s(%s)' % ('1.0' + f, f, a)
            else:
                e = '%s%s(%s)' % ({'ex2': 'exp2', 'lg2': 'log2', 'sin': 'sin', 'cos': 'cos', 'tanh': 'tanh'}[o], f, a)
            return g.setf(ops[0], e, ty, ftz)
        if o == 'cvt':
            return g.cvt(md, ops, tys, rm, ftz, sat, st)
        return None

    def x2(g, ops, ty, f, sat, dbl=False):
        b = 'H' if ty == 'f16x2' else 'BF'
        bb = ('HBD' if ty == 'f16x2' else 'BFBD') if dbl else b + 'B'
        r = '{' + ''.join('u32 i%d=%s; ' % (k, g.op(q, ty)) for k, q in enumerate(ops[1:]))
        e = []
        for sh in (0, 16):
            v = f(['%s((u16)(i%d>>%d))' % (b, k, sh) for k in range(len(ops) - 1)])
            if sat:
                v = 'SAT(%s)' % v
            e.append('((u32)%s(%s)<<%d)' % (bb, v, sh))
        return r + g.set(ops[0], '|'.join(e), ty) + '}'

    def cvt(g, md, ops, tys, rm, ftz, sat, st):
        relu = 'relu' in st
        if len(ops) == 3:  # pack
            d, a = tys[0], tys[1]
            if d in ('f16x2', 'bf16x2'):
                hb = 'HBM(%s,' + str(rm) + ')' if d == 'f16x2' else 'BFB(%s)'
                z = (lambda q: 'FMAX(%s,0.f)' % q) if relu else (lambda q: q)
                return g.set(ops[0], '((u32)%s<<16)|%s' % (hb % z(g.v(ops[1], 'f32')), hb % z(g.v(ops[2], 'f32'))), d)
            raise Err('cvt pack')
        d, a = tys[0], tys[1]
        fl = {'f16', 'bf16', 'f32', 'f64'}
        df, af = d in fl, a in fl
        # sources narrower than register: op() truncates
        if not df and not af:
            v = g.v(ops[1], a)
            if sat:
                c = S(W[d]) if d[0] == 's' else U(W[d])
                return g.set(ops[0], 'CL<%s>((s128)%s)' % (c, v), d, d[0] == 's')
            return g.set(ops[0], '(%s)%s' % (U(W[d]), '(%s)%s' % (S(W[d]), v) if a[0] == 's' else v), d, d[0] == 's')
        if not df:  # float->int
            c = S(W[d]) if d[0] == 's' else U(W[d])
            x = g.fv(ops[1], a, ftz)
            return g.set(
                ops[0], 'F2I<%s>((f64)%s,%d,%s)' % (c, x, rm, 'true' if a == 'f64' else 'false'), d, d[0] == 's'
            )
        if not af:  # int->float
            v = g.v(ops[1], a)
            c = 's64' if a[0] == 's' else 'u64'
            if d in ('f32', 'f64'):
                if rm:
                    return g.setf(ops[0], 'rt_cvt%s64_%d((%s)%s,%d)' % (c[0], W[d], c, v, rm), d, False, sat)
                return g.setf(ops[0], '(%s)%s' % (d, v), d, False, sat)
            return g.set(ops[0], ('HBD((f64)%s)' if d == 'f16' else 'BFBD((f64)%s)') % v, d)
        x = g.fv(ops[1], a, ftz)
        integer = bool(st & {'rni', 'rzi', 'rmi', 'rpi'})
        if d == a:
            if integer:
                x = 'RND(%s,%d)' % (x, rm)
            if d in ('f32', 'f64'):
                return g.setf(ops[0], x, d, ftz, sat)
            return g.setf(ops[0], x, d, False, sat)
        if d == 'f32' and a == 'f64':
            return g.setf(ops[0], '(f32)%s' % x if rm == 0 else 'rt_cvt64_32(%s,%d)' % (x, rm), 'f32', ftz, sat)
        if d == 'f16':
            if relu:
                x = 'FMAX(%s,(%s)0)' % (x, 'f64' if a == 'f64' else 'f32')
            if a == 'f64':
                return g.set(ops[0], 'HBD(%s)' % x, d)
            if sat:
                x = 'SAT(%s)' % x
            return g.set(ops[0], 'HBM(%s,%d)' % (x, rm), d)
        if d == 'bf16':
            if relu:
                x = 'FMAX(%s,0.f)' % x
            if a == 'f64':
                return g.set(ops[0], 'BFBD(%s)' % x, d)
            if rm == 1:
                return g.set(ops[0], '(u16)(B(%s)>>16)' % x, d)
            return g.set(ops[0], 'BFB(%s)' % x, d)
        return g.setf(ops[0], '(%s)%s' % (d, x), d, ftz, sat)
