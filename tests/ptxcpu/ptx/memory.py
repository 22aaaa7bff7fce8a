"""Instructions that move and address data: C++ of each, None for others."""

import re

from .parser import TY, W, Err, S, U, commas


class Memory:
    def memory(g, o, md, rest, l, x):
        ops = commas(rest)
        st = set(md)
        tys = [q for q in md if q in TY]
        ty = tys[-1] if tys else None
        if o == 'mov':
            if ops[0][0] == '{' or ops[1][0] == '{':
                if ops[1][0] == '{':
                    el = commas(ops[1][1:-1])
                    w = W[ty] // len(el)
                    e = '|'.join('((%s)%s<<%d)' % (U(W[ty]), g.op(q, 'b%d' % w), w * i) for i, q in enumerate(el))
                    return g.set(ops[0], e, ty)
                el = commas(ops[0][1:-1])
                w = W[ty] // len(el)
                g.ids += 1
                return '{%s q%d=%s; %s}' % (
                    U(W[ty]),
                    g.ids,
                    g.op(ops[1], ty),
                    ''.join(g.set(q, '(%s)(q%d>>%d)' % (U(w), g.ids, w * i)) for i, q in enumerate(el)),
                )
            return g.set(ops[0], g.op(ops[1], ty), None if ty == 'pred' else ty)
        if o in ('ld', 'ldu'):
            sp = (
                next(
                    (
                        q
                        for q in md
                        if q
                        in (
                            'global',
                            'shared',
                            'local',
                            'param',
                            'const',
                            'shared::cta',
                            'shared::cluster',
                            'param::entry',
                            'param::func',
                        )
                    ),
                    'generic',
                )
                .replace('param::entry', 'param')
                .replace('param::func', 'param')
            )
            vec = ops[0][0] == '{'
            ds = commas(ops[0][1:-1]) if vec else [ops[0]]
            nb = W[ty] // 8
            h, a = g.mem(
                ops[1], sp, nb * len(ds), nb * len(ds), l, 0, g.flags(0, st | ({'nc'} if o == 'ldu' else set()), nb)
            )
            sg = ty[0] == 's'
            r = h
            strong = bool(st & {'volatile', 'relaxed', 'acquire', 'mmio'}) and sp not in ('param', 'local')
            if strong:
                if nb * len(ds) == 16:
                    r += 'V16 q=LDA16(%s); ' % a
                    w = W[ty]
                    for i, d in enumerate(ds):
                        r += g.set(d, '(%s)(%s>>%d)' % (U(w), 'q.x' if i * w < 64 else 'q.y', (i * w) % 64), ty, sg)
                elif len(ds) > 1:
                    wt = nb * len(ds) * 8
                    r += '%s q=LDA<%s>(%s); ' % (U(wt), U(wt), a)
                    for i, d in enumerate(ds):
                        r += g.set(d, '(%s)(q>>%d)' % (U(W[ty]), i * W[ty]), ty, sg)
                elif nb == 16:
                    r += 'V16 q=LDA16(%s); ' % a + g.set(ds[0], '((u128)q.y<<64)|q.x', ty)
                else:
                    r += g.set(ds[0], 'LDA<%s>(%s)' % (U(W[ty]), a), ty, sg)
                if 'volatile' in st or 'acquire' in st or 'relaxed' in st:
                    r += 't->budget-=7;'
            else:
                if len(ds) > 1:
                    r += ' '.join(
                        '%s q%d=LD<%s>(%s+%d);' % (U(W[ty]), i, U(W[ty]), a, i * nb) for i in range(len(ds))
                    )
                    for i, d in enumerate(ds):
                        r += g.set(d, 'q%d' % i, ty, sg)
                else:
                    r += g.set(ds[0], 'LD<%s>(%s)' % (U(W[ty]), a), ty, sg)
            return r + '}'
        if o == 'st':
            sp = next(
                (
                    q
                    for q in md
                    if q in ('global', 'shared', 'local', 'param', 'shared::cta', 'shared::cluster', 'param::func')
                ),
                'generic',
            ).replace('param::func', 'param')
            vec = ops[1][0] == '{'
            ds = commas(ops[1][1:-1]) if vec else [ops[1]]
            nb = W[ty] // 8
            n = len(ds)
            h, a = g.mem(ops[0], sp, nb * n, nb * n, l, 1, g.flags(1, st, nb))
            r = h
            strong = bool(st & {'volatile', 'relaxed', 'release', 'mmio'}) and sp not in ('param', 'local')
            if strong and nb * n == 16:
                w = W[ty]
                if n == 1:
                    r += 'V16 q; q.x=(u64)%s; q.y=(u64)(%s>>64);' % (g.op(ds[0], ty), g.op(ds[0], ty))
                else:
                    r += 'V16 q; q.x=%s; q.y=%s; ' % tuple(
                        '|'.join(
                            '((u64)%s<<%d)' % (g.op(d, ty), (i * w) % 64)
                            for i, d in enumerate(ds)
                            if (i * w) // 64 == hh
                        )
                        for hh in (0, 1)
                    )
                r += 'STA16(%s,q);' % a
            elif strong and n > 1:
                wt = nb * n * 8
                r += 'STA<%s>(%s,%s);' % (
                    U(wt),
                    a,
                    '|'.join('((%s)%s<<%d)' % (U(wt), g.op(d, ty), i * W[ty]) for i, d in enumerate(ds)),
                )
            elif strong:
                r += 'STA<%s>(%s,%s);' % (U(W[ty]), a, g.op(ds[0], ty))
            else:
                for i, d in enumerate(ds):
                    r += 'ST<%s>(%s+%d,%s);' % (U(W[ty]), a, i * nb, g.op(d, ty))
            return r + '}'
        if o == 'cvta':
            to = 'to' in st
            sh = any(q.startswith('shared') for q in md)
            w = ty
            if sh:
                return g.set(ops[0], ('(%s-(u64)t->sh)' if to else '(%s+(u64)t->sh)') % g.op(ops[1], w), w)
            return g.set(ops[0], g.op(ops[1], w), w)
        if o == 'isspacep':
            a = g.op(ops[1], 'u64')
            insh = '(%s-(u64)t->sh<(u64)t->totsm)' % a
            if any(q.startswith('shared') for q in md):
                return g.set(ops[0], insh)
            loc = '(%s-((u64)__builtin_frame_address(0)-(1u<<20))<(2u<<20))' % a
            if 'local' in st:
                return g.set(ops[0], loc)
            if 'global' in st:
                return g.set(ops[0], '!%s&&!%s' % (insh, loc))
            return g.set(ops[0], 'false')
        return None

    def mbm(g, o, md, l, fl=None):
        return g.mem(o, 'shared' if any(q.startswith('shared') for q in md) else 'generic', 8, 8, l, 2, fl)

    def atom(g, o, md, ops, ty, st, l):
        sp = next((q for q in md if q in ('global', 'shared', 'shared::cta', 'shared::cluster')), 'generic')
        opn = next(q for q in md if q in ('add', 'and', 'or', 'xor', 'exch', 'cas', 'min', 'max', 'inc', 'dec'))
        if o == 'red':
            ops = ['_'] + ops
        if ops[0][0] == '{' or (len(ops) > 2 and ops[2][0] == '{'):
            raise Err('vector atom')
        nb = W[ty] // 8
        fl = g.flags(2, st, nb)
        if (
            ops[0] == '_'
            or g.f.body.count(ops[0]) == 1
            or len(re.findall(re.escape(ops[0]) + r'(?![\w$])', g.f.body)) == 1
        ):
            fl |= 1024
        h, a = g.mem(ops[1], sp, nb, nb, l, 2, None if opn == 'cas' else fl)
        u = U(W[ty])
        if opn == 'cas':
            if nb == 16:
                raise Err('cas128')
            return (
                h
                + '%s q=%s; bool q_=__atomic_compare_exchange_n((%s*)%s,&q,%s,false,__ATOMIC_SEQ_CST,__ATOMIC_SEQ_CST); '
                '(void)q_; WA(t,%s,%d,%d,q_?%d:%d); t->budget-=3; %s}'
                % (u, g.op(ops[2], ty), u, a, g.op(ops[3], ty), a, nb, l, fl, fl & ~(3 | 512), g.set(ops[0], 'q', ty))
            )
        if nb == 16:
            raise Err('atom128')
        v = g.op(ops[2], ty)
        if opn == 'exch':
            return (
                h
                + g.set(ops[0], '__atomic_exchange_n((%s*)%s,%s,__ATOMIC_SEQ_CST)' % (u, a, v), ty)
                + 't->budget-=3;}'
            )
        whole = ty[0] in 'bus' and ty not in ('bf16', 'bf16x2')
        logic = {'and': 'o&b', 'or': 'o|b', 'xor': 'o^b'}
        if whole and (opn == 'add' or opn in logic and ops[0] == '_'):
            return (
                h
                + g.set(ops[0], '__atomic_fetch_%s((%s*)%s,%s,__ATOMIC_SEQ_CST)' % (opn, u, a, v), ty)
                + 't->budget-=3;}'
            )
        # Of __atomic_fetch_or and the like, where the result is used, g++ 12 may make a loop that overwrites the register
        # with the address: RMW.
        if whole and opn in logic:
            e = logic[opn]
        elif ty in ('f32', 'f64'):
            f = 'F' if ty == 'f32' else 'D'
            e = {
                'add': 'B(%s(o)+%s(b))' % (f, f),
                'min': 'B(FMIN(%s(o),%s(b)))' % (f, f),
                'max': 'B(FMAX(%s(o),%s(b)))' % (f, f),
            }[opn]
        elif ty in ('f16', 'bf16'):
            f = 'H' if ty == 'f16' else 'BF'
            e = {
                'add': '%sB(%s(o)+%s(b))' % (f, f, f),
                'min': '%sB(FMIN(%s(o),%s(b)))' % (f, f, f),
                'max': '%sB(FMAX(%s(o),%s(b)))' % (f, f, f),
            }[opn]
        elif ty in ('f16x2', 'bf16x2'):
            f = 'H' if ty == 'f16x2' else 'BF'
            e = '((u32)%sB(%s((u16)(o>>16))+%s((u16)(b>>16)))<<16)|%sB(%s((u16)o)+%s((u16)b))' % ((f,) * 6)
        elif opn in ('min', 'max'):
            c = S(W[ty]) if ty[0] == 's' else u
            e = '((%s)o%s(%s)b?o:b)' % (c, '<' if opn == 'min' else '>', c)
        elif opn == 'inc':
            e = '(o>=b?0:o+1)'
        elif opn == 'dec':
            e = '((o==0||o>b)?b:o-1)'
        else:
            raise Err('atom ' + opn)
        return (
            h
            + '%s b=%s; ' % (u, v)
            + g.set(ops[0], '(RMW<%s>(%s,[=](%s o)->%s{return %s;}))' % (u, a, u, u, e), ty)
            + 't->budget-=3;}'
        )
