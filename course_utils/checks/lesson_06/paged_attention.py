"""6.10: decoding with a cache in pages, which query heads share by groups."""

import torch

from course_utils.checks import wordings
from course_utils.checks.exercise import Complaint, Exercise, call_with_clones
from course_utils.checks.inputs import Results, normals
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
        case(3, 8, 2, 4, 3, 13, 16, dtype=torch.float32),
        case(4, 4, 2, 3, 2, 19, 10, loud=2000.0),  # e^score overflows
        (100 + 100 * q.abs(), -100 - 100 * k.abs(), v, *where),  # all below -10,000
        case(1, 2, 1, 1, 1, 1),
    ]


def run(answer, q, k_pages, v_pages, tables, lengths):
    """Call an answer; complain if more than a page of each sequence is ever held at once."""
    results = Results()

    def watched(*args):  # without the clones
        with results:
            return answer(*args)

    found = call_with_clones(watched, q, k_pages, v_pages, tables, lengths)
    B, H = q.shape[:2]
    _, page, H_kv, d_k = k_pages.shape
    d_v = v_pages.shape[-1]
    largest = B * max(page * max(H_kv * max(d_k, d_v), H), H * max(d_k, d_v))
    if any(made.numel() > largest for made in results.held()):
        hint = (
            "right, but more than a page of each sequence is held at once, of keys, values or "
            "scores: take in page after page, as 6.2 takes in tiles"
        )
        raise Complaint("pages gathered", hint, found)
    return found


UPDATE = "m, ell, out = tile_update(m, ell, out, scores, v)"
GROUPS = "query.unflatten(0, (H_kv, -1))"

MISTAKES = [
    ("unused places read", "the last page is read to its end: past the text's length it holds what "
     "other texts left there", ("min(page, length - start)", "page")),
    ("table read to its end", "all pages of a table are read, all their places: the text ends "
     "after length tokens, what comes then is not its own", ("range(0, length, page)",
      "range(0, len(table) * page, page)"), ("min(page, length - start)", "page")),
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
    ("not scaled", wordings.NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("scaled twice", wordings.SCALED_TWICE, ("q.shape[-1] ** 0.5", "q.shape[-1]")),
    ("pages averaged", "the outputs of the pages are averaged: a page with larger scores must "
     "count more", (UPDATE, "ell, out = ell + 1, out + scores.softmax(dim=-1) @ v")),
    ("without maximum", "e^score overflows where scores are large: subtract the largest so far, as "
     "6.1 does", (UPDATE, "ell, out = ell + scores.exp().sum(dim=-1), out + scores.exp() @ v")),
    ("maximum begins at zero", wordings.STARTS_FINITE, ("-INF)", "0.0)")),
    ("never divided", "O is not divided by ℓ: after the last page each row still has to be",
     ("out / ell[..., None]", "out")),
    ("last page alone", "only the last page counts: carry m, ℓ and O on from page to page", (UPDATE,
      "ell, out = ell * 0 + 1, scores.softmax(dim=-1) @ v")),
]  # fmt: skip

exercise = Exercise("6.10", paged_attention, inputs, MISTAKES, names="H d_v", run=run)
