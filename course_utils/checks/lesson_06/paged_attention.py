"""6.10: decoding with a cache in pages, which query heads share by groups."""

import torch

from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_06._tiles import Held
from course_utils.tiled import tile_update

INF = torch.inf


def paged_attention(q, k_pages, v_pages, tables, lengths):
    page, H_kv = k_pages.shape[1:3]
    outs = []
    for query, table, length in zip(q, tables, lengths, strict=True):
        query = query.unflatten(0, (H_kv, -1))  # (H, d_k) -> (H_kv, group, d_k)
        m = torch.full_like(query[..., 0], -INF)  # (H_kv, group)
        ell = torch.zeros_like(m)
        out = v_pages.new_zeros(*m.shape, v_pages.shape[-1])  # (H_kv, group, d_v)
        for start in range(0, length, page):
            n = min(page, length - start)  # tokens on this page
            number = table[start // page]
            k = k_pages[number, :n].transpose(0, 1)  # (H_kv, n, d_k)
            v = v_pages[number, :n].transpose(0, 1)  # (H_kv, n, d_v)
            scores = query @ k.mT / q.shape[-1] ** 0.5  # (H_kv, group, n)
            m, ell, out = tile_update(m, ell, out, scores, v)
        outs.append((out / ell[..., None]).flatten(0, 1))  # (H, d_v)
    return torch.stack(outs)


def all_texts_at_once(q, k_pages, v_pages, tables, lengths):
    """Take in page i of every text together, whole, and mask what is past its end."""
    page, H_kv = k_pages.shape[1:3]
    lengths = torch.tensor(lengths)[:, None]
    q = q.unflatten(1, (H_kv, -1))  # (B, H_kv, group, d_k)
    m = torch.full(q.shape[:-1], -INF, dtype=q.dtype)
    ell, out = torch.zeros_like(m), torch.zeros(1, dtype=q.dtype)
    for i in range(max(map(len, tables))):
        numbers = [table[i] if i < len(table) else 0 for table in tables]
        there = i * page + torch.arange(page) < lengths  # (B, page)
        s = torch.einsum("bhgd,bphd->bhgp", q, k_pages[numbers]) / q.shape[-1] ** 0.5
        s = s.masked_fill(~there[:, None, None], -INF)
        top = torch.maximum(m, s.amax(-1))
        p, old = (s - top[..., None]).exp(), (m - top).exp()
        m, ell = top, ell * old + p.sum(-1)
        out = out * old[..., None] + torch.einsum("bhgp,bphd->bhgd", p, v_pages[numbers])
    return (out / ell[..., None]).flatten(1, 2)


def inputs():
    """Return (q, k_pages, v_pages, tables, lengths); what no token uses holds numbers as well."""
    normal = normals(610)
    rng = torch.Generator().manual_seed(611)

    def case(page, H, H_kv, d_k, d_v, *lengths, reserved=0, loud=1.0, dtype=torch.float64):
        used = [-(-length // page) + reserved for length in lengths]
        total = sum(used) + 3
        order = torch.randperm(total, generator=rng)
        tables = [pages.tolist() for pages in order[: sum(used)].split(used)]
        k = loud * normal(total, page, H_kv, d_k, dtype=dtype)
        v = normal(total, page, H_kv, d_v, dtype=dtype)
        return normal(len(lengths), H, d_k, dtype=dtype), k, v, tables, list(lengths)

    q, k, v, *where = case(4, 4, 2, 3, 2, 10)
    return [
        case(4, 6, 2, 3, 5, 21),
        case(3, 6, 3, 4, 2, 14, 1, 9),
        case(2, 4, 1, 3, 2, 5, 11, reserved=2),
        case(5, 3, 3, 2, 4, 23, 5),
        case(3, 8, 2, 4, 3, 16, dtype=torch.float32),  # one text: what is held in float64 counts
        case(4, 4, 2, 3, 2, 19, 10, loud=2000.0),  # e^score overflows
        (100 + 100 * q.abs(), -100 - 100 * k.abs(), v, *where),  # all below -10,000
        case(1, 2, 1, 1, 1, 1),
    ]


def most_held(answer, q, k_pages, v_pages, tables, lengths, times):
    """Return the most bytes held at once with texts so many times as long, in such a store."""
    page = k_pages.shape[1]
    stores = (each.detach().repeat(times, 1, 1, 1) for each in (k_pages, v_pages))
    given = [q.detach().clone(), *stores]
    used = [-(-length // page) for length in lengths]
    copies = range(0, times * len(k_pages), len(k_pages))  # of the store begin there
    tables = [
        [first + number for first in copies for number in table[:n]]
        for table, n in zip(tables, used, strict=True)
    ]
    more = [(times - 1) * n * page for n in used]
    longer = [length + n for length, n in zip(lengths, more, strict=True)]
    with torch.no_grad(), Held(given) as watch:
        answer(*given, tables, longer)
    return watch.most


def run(answer, *args):
    """Call an answer; complain if it holds the more, the longer the texts are.

    By half as much again with four times the pages, of the text and in the store: what joins them
    two by two holds a few more.
    Inputs of a single text are enough to see it.
    """
    found = call_with_clones(answer, *args)
    if len(args[-1]) > 1 or args[0].requires_grad:
        return found
    if most_held(answer, *args, times=8) > 1.5 * most_held(answer, *args, times=2):
        hint = (
            "right, but the longer the text and the larger the store, the more is held at once, of "
            "keys, values, scores or what was made of them: take in page after page, as 6.2 takes "
            "in tiles"
        )
        raise NamedMistake("pages gathered", hint, found)
    return found


UPDATE = "m, ell, out = tile_update(m, ell, out, scores, v)"
GROUPS = "query.unflatten(0, (H_kv, -1))"

MISTAKES = [
    ("unused places read", "the last page is read to its end: past the text's length it holds what "
     "other texts left there", ("min(page, length - start)", "page")),
    ("table read to its end", "all pages of a table are read, all their places: the text ends "
     "after length tokens, what comes then is not its own", ("range(0, length, page)",
      "range(0, len(table) * page, page)"), ("min(page, length - start)", "page")),
    ("last token dropped", "the last token of each text is not read: length tokens are there, the "
     "newest at place length − 1", ("range(0, length, page)", "range(0, length - 1, page)"),
     ("min(page, length - start)", "min(page, length - 1 - start)")),
    ("forbidden scores zero", "scores past the text's end are set to 0, and e^0 = 1 is a weight: "
     "−∞ belongs there, or they are left out", ("min(page, length - start)", "page"),
     (UPDATE, "scores = scores * (torch.arange(page) < length - start)\n            " + UPDATE)),
    ("last page dropped", "the tokens on a last page that is not full are dropped",
     ("range(0, length, page)", "range(0, max(length - page, 0) + 1, page)")),
    ("pages in order", "pages are taken in the order of the store: page number i of a text is "
     "k_pages[table[i]]", ("table[start // page]", "start // page")),
    ("first table for all", "the first text's table is used for all: each has one of its own",
     ("table[start // page]", "tables[0][min(start // page, len(tables[0]) - 1)]")),
    ("key heads take turns", "the key heads take turns, 0 1 0 1: neighbouring query heads share "
     "one, 0 0 1 1", (GROUPS, "query.unflatten(0, (-1, H_kv)).transpose(0, 1)"), (".flatten(0, 1))",
      ".transpose(0, 1).flatten(0, 1))")),
    ("heads put back in another order", "the queries of a group are right, but the heads come back "
     "in another order than they went in", (GROUPS,
      "query.unflatten(0, (-1, H_kv)).transpose(0, 1)")),
    ("first key head for all", "all query heads use the first key head: neighbours share one, H / "
     "H_kv of them each", ("k.mT", "k[:1].mT"), ("scores, v)", "scores, v[:1])")),
    ("not scaled", shared_hints.NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("scaled twice", shared_hints.SCALED_TWICE, ("q.shape[-1] ** 0.5", "q.shape[-1]")),
    ("pages averaged", "the outputs of the pages are averaged: a page with larger scores must "
     "count more", (UPDATE, "ell, out = ell + 1, out + scores.softmax(dim=-1) @ v")),
    ("without maximum", "e^score overflows where scores are large: subtract the largest so far, as "
     "6.1 does", (UPDATE, "ell, out = ell + scores.exp().sum(dim=-1), out + scores.exp() @ v")),
    ("output not rescaled", "O is not rescaled: it was measured from the old maximum, as ℓ was: × "
     "e^(m − m_new)", (UPDATE, "m, ell, _ = tile_update(m, ell, out, scores, v)\n"
      "            out = out + (scores - m[..., None]).exp() @ v")),
    ("nothing rescaled", "neither ℓ nor O is rescaled: what was measured from the old maximum has "
     "to shrink by e^(m − m_new)", (UPDATE, "m = torch.maximum(m, scores.amax(dim=-1))\n"
      "            p = (scores - m[..., None]).exp()\n"
      "            ell, out = ell + p.sum(dim=-1), out + p @ v")),
    ("maximum begins at zero", shared_hints.STARTS_FINITE, ("-INF)", "0.0)")),
    ("never divided", "O is not divided by ℓ: after the last page each row still has to be",
     ("out / ell[..., None]", "out")),
    ("last page alone", "only the last page counts: carry m, ℓ and O on from page to page", (UPDATE,
      "ell, out = ell * 0 + 1, scores.softmax(dim=-1) @ v")),
    ("first page alone", "only the first page of each text is read: go on to length tokens",
     ("range(0, length, page)", "range(0, min(length, page), page)")),
    ("every page cut short", "each page is cut as the last one is: all pages before it are full",
     ("min(page, length - start)", "length % page or page")),
    ("last page filled with zeros", "the last page is filled up with keys and values of 0, and "
     "their scores, 0, count: e^0 = 1 goes into ℓ; leave these places out, or set their scores to "
     "−∞",
     ("min(page, length - start)", "page"), (UPDATE,
      "there = torch.arange(page) < length - start\n"
      "            scores, v = scores * there, v * there[:, None]\n            " + UPDATE)),
    ("one token too many", "on the last page one place too many is read: length tokens are at "
     "places 0 to length − 1, and what comes then is not the text's own",
     ("min(page, length - start)", "min(page, length + 1 - start)")),
    ("first value head for all", "the scores are right, but all query heads mix the values of the "
     "first key head: neighbours share a head of v as they share one of k",
     ("scores, v)", "scores, v[:1])")),
    ("scaled by the width of values", shared_hints.BY_D_V,
     ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
]  # fmt: skip

exercise = Exercise(
    "6.10", paged_attention, inputs, MISTAKES, names="H d_v", run=run,
    also_right=[all_texts_at_once],
)  # fmt: skip
