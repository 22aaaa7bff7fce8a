"""Atomics, barriers, votes, branches, calls, copies in the background: C++ of each; others are refused."""

import re

from .parser import TY, Err, commas, fname


class Control:
    def control(g, o, md, rest, l, x):
        ops = commas(rest)
        st = set(md)
        tys = [q for q in md if q in TY]
        ty = tys[-1] if tys else None
        if o in ('atom', 'red'):
            return g.atom(o, md, ops, ty, st, l)
        if o in ('membar', 'fence'):
            w = (
                'WF(t,%d);' % (not st & {'cta', 'cluster'})
                if o == 'membar'
                and 'proxy' not in st
                or st & {'sc', 'acq_rel'}
                and not any('sync_restrict' in q for q in st)
                and 'proxy' not in st
                else ''
            )
            return '__atomic_thread_fence(__ATOMIC_SEQ_CST);' + w
        if o in ('bar', 'barrier'):
            md = [q for q in md if q not in ('cta', 'aligned')]
            st = set(md)
            if 'warp' in st:
                return 'rt_warp(t,OP_BARW,%d,%s,0,0,0);' % (l, g.op(ops[0], 'u32'))
            if 'cluster' in st:
                return 'rt_bar(t,16,-1,%d);' % l if 'wait' in st else ';'
            if 'red' in st:
                k = {'popc': 0, 'and': 1, 'or': 2}[md[1]]
                cnt = '-1' if len(ops) == 3 else g.s(ops[2], 's32')
                p = g.op(ops[-1], 'pred')
                return g.set(
                    ops[0],
                    'rt_barred(t,%s,%s,%d,%s,%d)' % (g.op(ops[1], 'u32'), cnt, k, p, l),
                    'u32' if k == 0 else None,
                )
            cnt = g.s(ops[1], 's32') if len(ops) > 1 else '-1'
            if 'arrive' in st:
                return 'rt_bararrive(t,%s,%s);' % (g.op(ops[0], 'u32'), cnt)
            return 'rt_bar(t,%s,%s,%d);' % (g.op(ops[0], 'u32'), cnt, l)
        if o == 'shfl':
            k = {'up': 'OP_SHUP', 'down': 'OP_SHDOWN', 'bfly': 'OP_SHBFLY', 'idx': 'OP_SHIDX'}[
                next(q for q in md if q in ('up', 'down', 'bfly', 'idx'))
            ]
            ds = ops[0].split('|')
            r = '{u64 q=rt_warp(t,%s,%d,%s,%s,%s,%s); ' % (
                k,
                l,
                g.op(ops[4], 'u32'),
                g.op(ops[1], 'b32'),
                g.op(ops[2], 'u32'),
                g.op(ops[3], 'u32'),
            )
            if len(ds) > 1:
                r += 'bool p_=t->retp; ' + g.set(ds[0], '(u32)q', 'b32') + g.set(ds[1], 'p_')
            else:
                r += g.set(ds[0], '(u32)q', 'b32')
            return r + '}'
        if o == 'vote':
            k = {'all': 'OP_ALL', 'any': 'OP_ANY', 'uni': 'OP_UNI', 'ballot': 'OP_BALLOT'}[
                next(q for q in md if q in ('all', 'any', 'uni', 'ballot'))
            ]
            return g.set(
                ops[0],
                'rt_warp(t,%s,%d,%s,%s,0,0)' % (k, l, g.op(ops[2], 'u32'), g.op(ops[1], 'pred')),
                'u32' if k == 'OP_BALLOT' else None,
            )
        if o == 'match':
            ds = ops[0].split('|')
            k = 'OP_MATCHANY' if 'any' in st else 'OP_MATCHALL'
            r = '{u64 q=rt_warp(t,%s,%d,%s,%s,0,0); bool p_=t->retp; ' % (
                k,
                l,
                g.op(ops[2], 'u32'),
                g.op(ops[1], ty),
            ) + g.set(ds[0], '(u32)q', 'b32')
            if len(ds) > 1:
                r += g.set(ds[1], 'p_')
            return r + '}'
        if o == 'redux':
            k = (
                'OP_R'
                + {'add': 'ADD_', 'min': 'MIN', 'max': 'MAX', 'and': 'AND', 'or': 'OR', 'xor': 'XOR'}[
                    next(q for q in md if q in ('add', 'min', 'max', 'and', 'or', 'xor'))
                ]
            )
            if k[-3:] in ('MIN', 'MAX'):
                k += 'S' if ty[0] == 's' else 'U'
            return g.set(ops[0], 'rt_warp(t,%s,%d,%s,%s,0,0)' % (k, l, g.op(ops[2], 'u32'), g.op(ops[1], ty)), 'u32')
        if o == 'elect':
            ds = ops[0].split('|')
            return '{u64 q=rt_warp(t,OP_ELECT,%d,%s,0,0,0); %s %s}' % (
                l,
                g.op(ops[1], 'u32'),
                g.set(ds[0], '(u32)q', 'b32'),
                g.set(ds[1], 't->lane==(u32)q'),
            )
        if o == 'activemask':
            return g.set(ops[0], 'rt_warp(t,OP_ACTIVE,%d,~0u,0,0,0)' % l, 'b32')
        if o == 'bra':
            return g.goto(ops[0])
        if o == 'brx':
            t_ = commas(re.sub(r'^\.branchtargets', '', g.tables_all[ops[1]]))
            return 'switch(%s){%s}' % (
                g.op(ops[0], 'u32'),
                ' '.join('case %d:%s' % (i, g.goto(q)) for i, q in enumerate(t_)),
            )
        if o in ('ret',):
            return 'return;' if not g.f.entry else 'rt_exit(t);'
        if o == 'exit':
            return 'rt_exit(t);'
        if o == 'trap':
            return 'rt_trap(t,%d,"trap");' % l
        if o == 'brkpt':
            return ';'
        if o == 'nanosleep':
            return '{t->budget=-1; rt_yield(t);}'
        if o == 'griddepcontrol':
            return 't->waited=1;' if 'wait' in st else ';'
        if o in ('prefetch', 'prefetchu', 'pmevent', 'discard', 'applypriority', 'setmaxnreg'):
            return ';'
        if o == 'createpolicy':
            return g.set(ops[0], '0', 'b64')
        if o == 'call':
            return g.call(md, rest, l)
        if o == 'cp' and 'async' in st and 'bulk' not in st and 'mbarrier' not in st:
            if 'wait_group' in st or 'commit_group' in st or 'wait_all' in st:
                return ';'
            n = int(ops[2])
            h1, a1 = g.mem(ops[0], 'shared', n, n, l, 1, g.flags(1, set(), 4))
            h2, a2 = g.mem(ops[1], 'global', 1, 1, l, 0)
            src = ops[3] if len(ops) > 3 else None
            h2 += 'WA(t,%s,%s,%d,%d); ' % (a2, g.op(src, 'u32') if src else n, l, g.flags(0, set(), 4))
            return '%s%s memset((void*)%s,0,%d); memcpy((void*)%s,(void*)%s,%s);}}' % (
                h1,
                h2,
                a1,
                n,
                a1,
                a2,
                g.op(src, 'u32') if src else n,
            )
        if o == 'mbarrier':
            k = md[0]
            if k == 'pending_count':
                return g.set(ops[0], '(u32)(%s&0xfffff)' % g.op(ops[1], 'b64'), 'u32')
            if k in ('init', 'inval', 'expect_tx', 'complete_tx'):
                h, a = g.mbm(
                    ops[0],
                    md,
                    l,
                    g.flags(2, {'relaxed', 'cta'}, 8) if k in ('expect_tx', 'complete_tx') else g.flags(1, set(), 8),
                )
                if k == 'init':
                    return h + 'MBINIT(%s,%s);}' % (a, g.op(ops[1], 'u32'))
                if k == 'inval':
                    return h + '}'
                return h + 'MBTX(%s,%s(s64)%s);}' % (a, '' if k == 'expect_tx' else '-', g.op(ops[1], 'u32'))
            if k in ('arrive', 'arrive_drop'):
                sink = ops[0].startswith('[')
                mo = ops if sink else ops[1:]
                h, a = g.mbm(mo[0], md, l, g.flags(2, ({'relaxed'} if 'relaxed' in st else {'release'}) | {'cta'}, 8))
                r = h
                if 'expect_tx' in st:
                    r += 'MBTXO(%s,(s64)%s);' % (a, g.op(mo[1], 'u32'))
                    cnt = '1'
                else:
                    cnt = g.op(mo[1], 'u32') if len(mo) > 1 else '1'
                r += 'u64 q=MBARR(%s,%s,%s);' % (a, cnt, 'true' if k == 'arrive_drop' else 'false')
                return r + ('' if sink else g.set(ops[0], 'q', 'b64')) + '}'
            if k in ('test_wait', 'try_wait'):
                h, a = g.mbm(ops[1], md, l)
                w = 'if(q) WA(t,%s,8,%d,%d); ' % (
                    a,
                    l,
                    g.flags(0, ({'relaxed'} if 'relaxed' in st else {'acquire'}) | {'cta'}, 8),
                )
                par = (
                    '(bool)(%s&1)' % g.op(ops[2], 'u32') if 'parity' in st else '(bool)(%s>>63)' % g.op(ops[2], 'b64')
                )
                return (
                    h + 'bool q=(bool)(LD<u64>(%s)>>63)!=%s; if(!q){t->budget=-1; rt_yield(t); '
                    'q=(bool)(LD<u64>(%s)>>63)!=%s;} ' % (a, par, a, par) + w + g.set(ops[0], 'q') + '}'
                )
        if o == 'cp' and 'async' in st and 'mbarrier' in st:
            h, a = g.mbm(ops[0], md, l, g.flags(2, {'release', 'cta'}, 8))
            return h + ('MBARR(%s,1,false);}' % a if 'noinc' in st else '}')
        if o == 'cp' and 'async' in st and 'bulk' in st and 'tensor' not in st:
            if 'commit_group' in st or 'wait_group' in st or 'prefetch' in st:
                return ';'
            n = g.op(ops[2], 'u32')
            if 'mbarrier::complete_tx::bytes' in st:
                h1, a1 = g.mem(ops[0], 'shared', 1, 16, l, 1)
                h2, a2 = g.mem(ops[1], 'global', 1, 16, l, 0)
                h3, a3 = g.mem(ops[3], 'shared', 8, 8, l, 2)
                return (
                    h1 + h2 + h3 + 'u32 n=%s; if(n&15)rt_misaligned(t,n,16,%d); if(n){ck<16>(t,%s+n-16,16,%d,0); '
                    'WA(t,%s,n,%d,%d); WA(t,%s,n,%d,%d); memcpy((void*)%s,(void*)%s,n);} WA(t,%s,8,%d,%d); '
                    'MBTX(%s,-(s64)n);}}}'
                    % (
                        n,
                        l,
                        a2,
                        l,
                        a2,
                        l,
                        g.flags(0, set(), 4),
                        a1,
                        l,
                        g.flags(1, set(), 4),
                        a1,
                        a2,
                        a3,
                        l,
                        g.flags(2, {'release', 'cta'}, 8),
                        a3,
                    )
                )
            h1, a1 = g.mem(ops[0], 'global', 1, 16, l, 1)
            h2, a2 = g.mem(ops[1], 'shared', 1, 16, l, 0)
            return (
                h1 + h2 + 'u32 n=%s; if(n){ck<16>(t,%s+n-16,16,%d,1); WA(t,%s,n,%d,%d); WA(t,%s,n,%d,%d); '
                'memcpy((void*)%s,(void*)%s,n);}}}'
                % (n, a1, l, a2, l, g.flags(0, set(), 4), a1, l, g.flags(1, set(), 4), a1, a2)
            )
        if o == 'nop':
            return ';'
        raise Err('opcode ' + o + '.' + '.'.join(md))

    def call(g, md, rest, l):
        m = re.match(r'(?:\(([^)]*)\)\s*,\s*)?([\w$%.]+)\s*(?:,\s*\(([^)]*)\))?\s*(?:,\s*([\w$%]+))?$', rest)
        if not m:
            raise Err('call syntax')
        rets = commas(m.group(1) or '')
        fn = m.group(2)
        args = commas(m.group(3) or '')

        def par(a):
            r = g.reg(a)
            if r and r[0] == 'param':
                return r[2]
            raise Err('call arg ' + a)

        A = [par(a) for a in args]
        R = [par(a) for a in rets]
        if fn == 'vprintf':
            return (
                '{u64 f,a; memcpy(&f,%s,8); memcpy(&a,%s,8); u32 q=rt_vprintf(t,(const char*)f,(const u8*)a); '
                'memcpy(%s,&q,4);}' % (A[0], A[1], R[0])
            )
        if fn == '__assertfail':
            return (
                '{u64 m,f,n; u32 k; memcpy(&m,%s,8); memcpy(&f,%s,8); memcpy(&k,%s,4); memcpy(&n,%s,8); '
                'rt_assert(t,(const char*)m,(const char*)f,k,(const char*)n);}' % tuple(A[:4])
            )
        if fn == 'malloc':
            return '{u64 n; memcpy(&n,%s,8); n=rt_malloc(n); memcpy(%s,&n,8);}' % (A[0], R[0])
        if fn == 'free':
            return '{u64 n; memcpy(&n,%s,8); rt_free(n);}' % A[0]
        if g.isreg(fn):
            cs = ''.join(
                'case %sull:%s(t%s);break; ' % (hex(g.m.ftoken(n)), fname(n), ''.join(',' + a for a in R + A))
                for n in sorted(g.m.taken())
                if len(g.m.funcs[n].ret) == len(R) and len(g.m.funcs[n].params) == len(A)
            )
            return 'switch(%s){%sdefault:rt_trap(t,%d,"indirect call to a non-function");}' % (g.reg(fn)[2], cs, l)
        if fn not in g.m.funcs:
            raise Err('call to unknown ' + fn)
        if g.m.funcs[fn].body is None:
            raise Err('call to extern ' + fn)
        g.E.need(fn)
        return '%s(t%s);' % (fname(fn), ''.join(',' + a for a in R + A))
