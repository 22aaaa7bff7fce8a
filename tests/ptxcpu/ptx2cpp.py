#!/usr/bin/env python3
"""Translates PTX to C++.
ptx2cpp.py MODULE.ptx FOLDER TAG [KERNEL]   writes globals.cpp, manifest.txt and each kernel's .cpp and .meta to FOLDER;
with KERNEL its files alone"""

import os
import re
import sys

from ptx.generator import Gen
from ptx.parser import W, Err, Mod, commas, fname, gname, parse_var


class Entry:
    def __init__(E, mod, name):
        E.m = mod
        E.name = name
        E.base = mod.funcs[name].line
        E.useglob = set()
        E.fn = []
        E.code = {}
        E.shoff = {}
        E.static = 0
        # transitive callee set
        todo = [name]
        seen = []
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.append(n)
            b = mod.funcs[n].body
            if b is None:
                continue
            if '.callprototype' in b:
                todo.extend(mod.taken())
            for c in set(re.findall(r'[\w$%.]+', b)):
                if c in mod.funcs and c not in seen and c not in ('vprintf', '__assertfail', 'malloc', 'free'):
                    todo.append(c)
        E.seen = seen
        E.usedids = set()
        off = 0
        dyn = []
        items = []
        for n in seen:
            b = mod.funcs[n].body
            if b is None:
                continue
            ids = set(re.findall(r'[\w$%.]+', b))
            E.usedids |= ids
            for s, v in mod.shared.items():
                if s in ids and v not in items:
                    items.append(v)
            for mm in re.finditer(r'(?:^|[;{}\n])\s*\.shared\b([^;]*);', b):
                v = parse_var(mm.group(1)) if re.match(r'\s*(\.align|\.[bus]\d)', mm.group(1)) else None
                if v:
                    items.append(v)
        for v in items:
            if v['size'] == 0:
                dyn.append(v)
                continue
            off = (off + v['align'] - 1) // v['align'] * v['align']
            E.shoff[v['name']] = off
            off += v['size']
        E.static = off
        al = max([v['align'] for v in dyn] + [16]) if dyn else 16
        doff = (off + al - 1) // al * al
        for v in dyn:
            E.shoff[v['name']] = doff
        E.dynoff = doff if dyn else off
        # codegen
        for n in reversed(seen):
            f = mod.funcs[n]
            if f.body is not None:
                E.code[n] = E.gen(f)

    def need(E, fn):
        if fn not in E.code and fn not in E.seen:
            raise Err('callee ' + fn)

    def gen(E, f):
        g = Gen(E.m, f, E)
        g.usedregs = set(re.findall(r'%[\w$]+', re.sub(r'\.reg\b[^;]*;', '', f.body)))
        g.tables_all = {
            mm.group(1): '.branchtargets ' + re.sub(r'\s+', ' ', mm.group(2))
            for mm in re.finditer(r'([\w$%]+)\s*:\s*\.branchtargets\s*([^;]*);', f.body)
        }
        hdr = []
        if f.entry:
            off = 0
            lay = []
            for p in f.params:
                off = (off + p['align'] - 1) // p['align'] * p['align']
                lay.append((off, p['size']))
                g.scopes[0][p['name']] = ('param', p['size'], '(P+%d)' % off)
                off += p['size']
            E.lay = lay
            E.psize = off
            hdr = ['extern "C" void KERNEL(T*t,u8*P){u32 CC=0;(void)CC;']
        else:
            ar = []
            for i, p in enumerate(f.ret + f.params):
                g.scopes[0][p['name']] = ('param', p['size'], 'A%d' % i)
                ar.append('u8*A%d' % i)
            hdr = ['static void %s(T*t%s){u32 CC=0;(void)CC;' % (fname(f.name), ''.join(',' + a for a in ar))]
        loc = sum(parse_var(x)['size'] for x in re.findall(r'(?:^|[;{}\n])\s*\.local\b([^;]*);', f.body))
        hdr.append('if(__builtin_expect((u64)__builtin_frame_address(0)-%d<t->stk0,0))rt_stk(t);' % (loc + 6000))
        g.out = hdr
        g.top = 2
        g.body()
        g.out.append('rt_exit(t);}' if f.entry else '}')
        return '\n'.join(g.out)

    def text(E):
        o = ['#include "ptxrt.h"']
        for n in sorted(E.useglob):
            o.append('extern "C" u8 %s[];' % gname(E.m, n))
        for n in E.code:
            f = E.m.funcs[n]
            if not f.entry:
                o.append('static void %s(T*t%s);' % (fname(n), ',u8*' * len(f.ret + f.params)))
        for n in E.code:
            if not E.m.funcs[n].entry:
                o.append(E.code[n])
        o.append(E.code[E.name])
        return '\n'.join(o)


def globals_cpp(m):
    o = ['#include "ptxrt.h"', 'extern "C"{']
    init = []
    for n, v in m.globals.items():
        o.append('extern u8 %s[];' % gname(m, n))
    for n, v in m.globals.items():
        if v['size'] == 0:
            continue
        w = W[v['ty']] // 8
        data = []
        if v['init']:
            s = v['init'].strip()
            el = commas(s[1:-1].replace('{', '').replace('}', '')) if s[0] == '{' else [s]
            by = bytearray()
            for k, e in enumerate(el):
                e = e.strip()
                if re.fullmatch(r'0[fF][0-9a-fA-F]{8}', e):
                    x = int(e[2:], 16)
                elif re.fullmatch(r'0[dD][0-9a-fA-F]{16}', e):
                    x = int(e[2:], 16)
                elif re.fullmatch(r'-?(0[xX][0-9a-fA-F]+|\d+)U?', e):
                    x = int(e.rstrip('U'), 0) if not re.fullmatch(r'0\d+', e) else int(e, 8)
                else:
                    mm = re.fullmatch(r'(?:0x[fF]+\()?\s*(?:generic\()?\s*([\w$%.]+)\)?\s*(?:\+\s*(\d+))?\s*\)?', e)
                    if mm and mm.group(1) in m.globals and w == 8:
                        init.append(
                            '{u64 a=(u64)%s+%s; memcpy(%s+%d,&a,8);}'
                            % (gname(m, mm.group(1)), mm.group(2) or 0, gname(m, n), k * w)
                        )
                        x = 0
                    elif mm and mm.group(1) in m.funcs and w == 8:
                        x = m.ftoken(mm.group(1))
                    else:
                        sys.stderr.write('init of %s not understood: %s\n' % (n, e))
                        x = 0
                by += (x & ((1 << (8 * w)) - 1)).to_bytes(w, 'little')
            by = bytes(by).rstrip(b'\0')
            data = by
        o.append(
            'alignas(%d) u8 %s[%d]%s;'
            % (max(16, v['align']), gname(m, n), v['size'], '={%s}' % ','.join(map(str, data)) if data else '={}')
        )
    o.append('}')
    o.append('extern "C" void ptxg_%s_init(){%s}' % (m.tag, ''.join(init)))
    return '\n'.join(o)


def stem(name):
    """The name of a kernel's files, as runtime/modules.h has it: FNV-1a."""
    h = 1469598103934665603
    for c in name.encode():
        h = (h ^ c) * 1099511628211 % 2**64
    return 'k%016x' % h


def put(path, text):
    """Another process may write the same file."""
    with open('%s.%d' % (path, os.getpid()), 'w') as f:
        f.write(text)
    os.rename(f.name, path)


def kernel(m, name, path):
    E = Entry(m, name)
    put(path + '.cpp', E.text())
    sizes = [(E.static, E.dynoff, E.psize, len(E.lay), m.funcs[name].maxntid, E.base)] + E.lay
    put(path + '.meta', ''.join(' '.join(map(str, each)) + '\n' for each in sizes))


def main():
    out = sys.argv[2]
    tag = sys.argv[3]
    os.makedirs(out, exist_ok=True)
    want = sys.argv[4] if len(sys.argv) > 4 else None
    m = Mod(open(sys.argv[1]).read(), tag)
    if want:
        return kernel(m, want, out + '/' + stem(want))
    put(out + '/globals.cpp', globals_cpp(m))
    for n in m.order:
        if m.funcs[n].entry:
            try:
                kernel(m, n, out + '/' + stem(n))
            except Err:
                pass  # says so if it is launched
    lines = ['target %d\n' % m.target]
    lines += ['global %s %d %s\n' % (n, v['size'], gname(m, n)) for n, v in m.globals.items() if v['size']]
    lines += ['entry %s %d\n' % (n, m.funcs[n].maxntid) for n in m.order if m.funcs[n].entry]
    put(out + '/manifest.txt', ''.join(lines))


if __name__ == '__main__':
    try:
        main()
    except Err as e:
        sys.stderr.write('ptx2cpp: %s\n' % e)
        sys.exit(1)
