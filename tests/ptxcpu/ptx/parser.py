"""PTX as text into a module: its functions, variables and labels."""

import re

W = {
    'pred': 1,
    'b8': 8,
    'u8': 8,
    's8': 8,
    'b16': 16,
    'u16': 16,
    's16': 16,
    'f16': 16,
    'bf16': 16,
    'b32': 32,
    'u32': 32,
    's32': 32,
    'f32': 32,
    'f16x2': 32,
    'bf16x2': 32,
    'tf32': 32,
    'b64': 64,
    'u64': 64,
    's64': 64,
    'f64': 64,
    'b128': 128,
    'f32x2': 64,
}
TY = set(W)


def U(w):
    return {1: 'bool', 8: 'u8', 16: 'u16', 32: 'u32', 64: 'u64', 128: 'u128'}[w]


def S(w):
    return {8: 's8', 16: 's16', 32: 's32', 64: 's64', 128: 's128'}[w]


def mang(n):
    return 'v_' + n.replace('%', 'P_').replace('$', 'D_').replace('.', '_o_')


class Err(Exception):
    pass


def strip(src):
    src = re.sub(r'/\*.*?\*/', lambda m: '\n' * m.group(0).count('\n'), src, flags=re.S)
    src = re.sub(r'//[^\n]*', '', src)
    src = re.sub(r'^[ \t]*\.(loc|file|pragma)\b[^\n]*$', '', src, flags=re.M)
    src = re.sub(r'\.section\b[^{]*\{[^}]*\}', '', src)
    return src


def split(src, line0=1):
    """yield (kind,text,line): kind in stmt,open,close,label"""
    buf = ''
    i = 0
    line = line0
    start = line0
    n = len(src)
    while i < n:
        c = src[i]
        if c == '\n':
            line += 1
        if not buf.strip():
            if not c.isspace() and not buf:
                start = line
            if c == '{':
                yield ('open', '', line)
                buf = ''
                i += 1
                continue
            if c == '}':
                yield ('close', '', line)
                buf = ''
                i += 1
                continue
            if c.isspace() or c == ';':
                buf = ''
                i += 1
                continue
        if c == '{':
            d = 1
            j = i + 1
            while d:
                if src[j] == '{':
                    d += 1
                elif src[j] == '}':
                    d -= 1
                elif src[j] == '\n':
                    line += 1
                j += 1
            buf += src[i:j]
            i = j
            continue
        if c == ';':
            yield ('stmt', re.sub(r'\s+', ' ', buf.strip()), start)
            buf = ''
            i += 1
            continue
        if c == ':' and re.fullmatch(r'[\w$%]+\s*', buf) and src[i + 1 : i + 2] != ':':
            yield ('label', buf.strip(), start)
            buf = ''
            i += 1
            continue
        buf += c
        i += 1


def commas(s):
    out = []
    d = 0
    b = ''
    for c in s:
        if c in '[{(':
            d += 1
        elif c in ']})':
            d -= 1
        if c == ',' and d == 0:
            out.append(b.strip())
            b = ''
        else:
            b += c
    if b.strip():
        out.append(b.strip())
    return out


def parse_var(s):
    """.align 4 .b8 name[3][4] = {...} -> (align,type,name,count,init)"""
    init = None
    if '=' in s:
        s, init = s.split('=', 1)
        init = init.strip()
    al = re.search(r'\.align\s+(\d+)', s)
    v = re.search(r'\.v([24])\b', s)
    ty = [t for t in re.findall(r'\.(\w+)', s) if t in TY]
    ty = ty[0]
    m = re.search(r'([\w$%.]+)\s*((?:\[\s*\d*\s*\]\s*)*)$', s.strip().rstrip(','))
    name = m.group(1)
    cnt = 1
    arr = re.findall(r'\[\s*(\d*)\s*\]', m.group(2))
    for a in arr:
        cnt *= int(a) if a else 0
    if v:
        cnt *= int(v.group(1))
    size = W[ty] // 8 * cnt
    a = int(al.group(1)) if al else (W[ty] // 8 * (int(v.group(1)) if v else 1))
    return dict(align=a, ty=ty, name=name, size=size, init=init, arr=bool(arr))


class Func:
    pass


class Mod:
    def __init__(m, src, tag):
        m.tag = tag
        m.funcs = {}
        m.order = []
        m.globals = {}
        m.shared = {}
        m.target = 75
        t = re.search(r'\.target\s+sm_(\d+)', src)
        if t:
            m.target = int(t.group(1))
        src = strip(src)
        m.src = src
        line = 1
        # top level scan
        pos = 0
        while True:
            mm = re.compile(r'\S').search(src, pos)
            if not mm:
                break
            p = mm.start()
            # statement until ';' or '{' body of function
            line = src.count('\n', 0, p) + 1 if p - pos < 2000000 else 1
            if re.match(r'\.(version|target|address_size)\b', src[p : p + 14]):
                pos = src.index('\n', p)
                continue
            j = p
            hdr = ''
            isf = re.compile(r'(\.(visible|weak|extern|noreturn|common|hidden|internal)\s+)*\.(entry|func)\b').match(
                src, p
            )
            if isf:
                j = p
                while src[j] not in '{;':
                    j += 1
                hdr = src[p:j]
                if src[j] == ';':
                    m.addfunc(hdr, None, line)
                    pos = j + 1
                    continue
                d = 1
                k = j + 1
                while d:
                    c = src[k]
                    if c == '{':
                        d += 1
                    elif c == '}':
                        d -= 1
                    k += 1
                m.addfunc(hdr, src[j + 1 : k - 1], src.count('\n', 0, j) + 1)
                pos = k
            else:
                j = src.index(';', p)
                s = re.sub(r'\s+', ' ', src[p:j].strip())
                pos = j + 1
                m.addvar(s)

    def ftoken(m, n):
        return 0x7F5A000000000000 + 16 * sorted(m.funcs).index(n)

    def taken(m):
        if not hasattr(m, '_tk'):
            tk = set()
            for v in m.globals.values():
                if v['init']:
                    tk |= set(re.findall(r'[\w$%.]+', v['init'])) & set(m.funcs)
            for f in m.funcs.values():
                if f.body:
                    tk |= set(re.findall(r'mov\.[ub]64\s+[\w%$]+\s*,\s*([\w$%.]+)\s*;', f.body)) & set(m.funcs)
            m._tk = {n for n in tk if m.funcs[n].body is not None and not m.funcs[n].entry}
        return m._tk

    def addvar(m, s):
        if s.startswith('.alias'):
            return
        sp = re.search(r'\.(global|const|shared)\b', s)
        if not sp:
            return
        v = parse_var(
            re.sub(r'\.(visible|weak|extern|common|global|const|shared|attribute\([^)]*\)|managed)\b', '', s, count=0)
            if '=' not in s
            else re.sub(r'\.(visible|weak|extern|common|global|const|shared)\b', '', s.split('=', 1)[0])
            + '='
            + s.split('=', 1)[1]
        )
        v['space'] = sp.group(1)
        v['extern'] = '.extern' in s
        if sp.group(1) == 'shared':
            m.shared[v['name']] = v
        else:
            if not (v['extern'] and v['name'] in m.globals):
                m.globals[v['name']] = v

    def addfunc(m, hdr, body, line):
        f = Func()
        h = re.sub(r'\s+', ' ', hdr)
        f.entry = '.entry' in h
        # Labels without the function's number: a kernel is then the same text in every module.
        f.body = body and re.sub(r'\$L__BB\d+_', '$L__BB_', body)
        f.line = line
        f.noret = '.noreturn' in h
        mm = re.search(r'\.(?:entry|func)\s*(?:\(([^)]*)\))?\s*([\w$%.]+)\s*(?:\((.*?)\))?', h)
        f.ret = [parse_var(re.sub(r'\.param|\.ptr|\.reg', '', x)) for x in commas(mm.group(1))] if mm.group(1) else []
        f.name = mm.group(2)
        ps = mm.group(3) or ''

        def cl(x):
            x = re.sub(r'\.ptr(\s*\.(global|const|shared|local))?(\s*\.align\s+\d+)?', '', x)
            return re.sub(r'\.(param|reg)\b', '', x)

        f.params = [parse_var(cl(x)) for x in commas(ps)] if ps.strip() else []
        mt = re.search(r'\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?', h)
        f.maxntid = 1
        if mt:
            for g in mt.groups():
                f.maxntid *= int(g) if g else 1
        else:
            f.maxntid = 1024
        if f.name in m.funcs and m.funcs[f.name].body is not None and body is None:
            return
        m.funcs[f.name] = f
        m.order.append(f.name)


def fname(n):
    return 'fn_' + mang(n)


def gname(m, n):
    return 'ptxg_%s_%s' % (m.tag, mang(n))
