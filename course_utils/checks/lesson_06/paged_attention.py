"""6.11: decoding with a paged cache and grouped-query attention."""

import torch

from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Held, normals
from course_utils.checks.lesson_06._tiles import (
    BOTH_OF_OLD_MAXIMUM,
    NO_MAXIMUM,
    OUT_OF_OLD_MAXIMUM,
)
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
    """Process page i of all texts together, and mask the slots past the end of each text."""
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
    """Return (q, k_pages, v_pages, tables, lengths); unused slots hold numbers as well."""
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
    q_full, k_full, v_full, *full = case(4, 4, 2, 3, 2, 12)
    return [
        case(4, 6, 2, 3, 5, 21),
        case(3, 6, 3, 4, 2, 14, 1, 9),
        case(2, 4, 1, 3, 2, 5, 11, reserved=2),
        case(5, 3, 3, 2, 4, 23, 5),
        case(3, 8, 2, 4, 3, 16, dtype=torch.float32),  # one text: memory is measured in float64
        case(4, 4, 2, 3, 2, 19, 10, loud=2000.0),  # e^score overflows
        (100 + 100 * q.abs(), -100 - 100 * k.abs(), v, *where),  # all below -10,000
        (100 + 100 * q_full.abs(), -100 - 100 * k_full.abs(), v_full, *full),  # all slots used
        case(1, 2, 1, 1, 1, 1),
        case(3, 4, 2, 3, 3, 7, 4),
        case(4, 6, 3, 2, 4, 8, 5, 12, reserved=1),  # full pages, and others in reserve
    ]


def most_held(answer, q, k_pages, v_pages, tables, lengths, times, more_text=True):
    """Return the peak of bytes held, with a store ``times`` as long, and texts too."""
    page = k_pages.shape[1]
    stores = (each.detach().repeat(times, 1, 1, 1) for each in (k_pages, v_pages))
    given = [q.detach().clone(), *stores]
    used = [-(-length // page) for length in lengths]
    longer_by = times if more_text else 1
    copies = range(0, longer_by * len(k_pages), len(k_pages))  # the copies of the store start there
    tables = [
        [first + number for first in copies for number in table[:n]]
        for table, n in zip(tables, used, strict=True)
    ]
    more = [(longer_by - 1) * n * page for n in used]
    longer = [length + n for length, n in zip(lengths, more, strict=True)]
    with torch.no_grad(), Held(given) as watch:
        answer(*given, tables, longer)
    return watch.most


def run(answer, *args):
    """Call an answer. If it is right, check that its memory does not grow with the text.

    With four times as many pages, in the text and in the store, it may hold 1.5 times as much,
    because merging parts in pairs holds a few more. Inputs with a single text are enough.
    """
    found = call_with_clones(answer, *args)
    if len(args[-1]) > 1 or args[0].requires_grad:
        return found
    if most_held(answer, *args, times=8) > 1.5 * most_held(answer, *args, times=2):
        stores = (most_held(answer, *args, times=n, more_text=False) for n in (2, 8))
        if 1.5 * next(stores) < next(stores):
            hint = (
                "Right, but you copy the whole store, for example to repeat its heads. Copy at "
                "most one page of each text at a time."
            )
            raise NamedMistake("store copied", hint, found)
        hint = (
            "Right, but you hold more numbers at once when the text has more pages. Read one "
            "page after another, as 6.2 reads tiles, and keep only m, ℓ and O."
        )
        raise NamedMistake("pages gathered", hint, found)
    return found


UPDATE = "m, ell, out = tile_update(m, ell, out, scores, v)"
GROUPS = "query.unflatten(0, (H_kv, -1))"

PAGE_IN_RESERVE = (
    "Right, unless the last page of a text is full and the text's table lists another page. Then "
    "you read that page too, but it holds no token of the text. Round length / page up to get "
    "the number of pages."
)
FIRST_LENGTH = (
    "You use the first text's length for all texts. That gives wrong results, or an error where "
    "another table is shorter. Use each text's own length."
)
LONGEST_LENGTH = (
    "You use the longest text's length for all texts. That gives wrong results, or an error where "
    "another table is shorter. Use each text's own length."
)

MISTAKES = [
    ("masked after the exponential",
     "Right, unless the score of an unused slot is far above the others. It still counts in your "
     "maximum, so all weights underflow to 0, and 0 / 0 is NaN. Set these scores to −∞ before you "
     "take the maximum.",
     ("min(page, length - start)", "page"),
     (UPDATE, "top = torch.maximum(m, scores.amax(dim=-1))\n"
              "            there = torch.arange(page) < length - start\n"
              "            p = (scores - top[..., None]).exp() * there\n"
              "            old, m = (m - top).exp(), top\n"
              "            ell, out = ell * old + p.sum(dim=-1), out * old[..., None] + p @ v")),
    ("unused places read",
     "You read the last page to its end. The slots after the end of the text hold what other texts "
     "left there. Stop after `length` tokens.",
     ("min(page, length - start)", "page")),
    ("table read to its end",
     "You read every page in the table to its end. Only the first `length` tokens belong to the "
     "text, so stop after them.",
     ("range(0, length, page)",
      "range(0, len(table) * page, page)"),
     ("min(page, length - start)", "page")),
    ("page in reserve read", PAGE_IN_RESERVE,
     ("range(0, length, page)", "range(0, min(length + 1, len(table) * page), page)"),
     ("min(page, length - start)", "page if start + page <= length else length % page or page")),
    ("slot in reserve read", PAGE_IN_RESERVE,
     ("range(0, length, page)", "range(0, min(length + 1, len(table) * page), page)"),
     ("min(page, length - start)", "max(1, min(page, length - start))")),
    ("error for full pages",
     "Right, unless the last page of a text is full. Then you get an error. If you read length // "
     "page + 1 pages, you read one too many, so round length / page up. If you read length % page "
     "slots of the last page, you read none, although a full page has `page` slots.",
     ("range(0, length, page)", "range(0, length + 1, page)")),
    ("finished texts read on",
     "Right if all texts have the same number of pages. Otherwise you go on reading pages for a "
     "shorter text until the longest text ends. Leave out the slots after the end of each text, or "
     "set their scores to −∞.",
     ("range(0, length, page)", "range(0, max(lengths), page)"),
     ("min(page, length - start)", "min(page, length - start) if start < length else page"),
     ("table[start // page]", "table[min(start // page, len(table) - 1)]")),
    ("as many pages as the first text",
     "You read at most as many pages of each text as the first text has. Read all `lengths[b]` "
     "tokens of text b.",
     ("range(0, length, page)", "range(0, min(length, -(-lengths[0] // page) * page), page)")),
    ("as many pages as the shortest text",
     "You read at most as many pages of each text as the shortest text has. Read all `lengths[b]` "
     "tokens of text b.",
     ("range(0, length, page)", "range(0, min(length, -(-min(lengths) // page) * page), page)")),
    ("length of the first text", FIRST_LENGTH,
     ("for start in", "length = min(lengths[0], len(table) * page)\n        for start in")),
    ("length of the first text, beyond the table", FIRST_LENGTH,
     ("for start in", "length = lengths[0]\n        for start in")),
    ("length of the longest text", LONGEST_LENGTH,
     ("for start in", "length = min(max(lengths), len(table) * page)\n        for start in")),
    ("length of the longest text, beyond the table", LONGEST_LENGTH,
     ("for start in", "length = max(lengths)\n        for start in")),
    ("values in order",
     "You look up the pages of k in the table, but take those of v in the order of the store. Use "
     "v_pages[table[i]] too.",
     ("v_pages[number, :n]", "v_pages[start // page, :n]")),
    ("keys averaged",
     "Your output averages the keys, so it is d_k wide. Multiply the weights by the values, from "
     "v_pages.",
     ("v = v_pages", "v = k_pages"),
     ("v_pages.new_zeros(*m.shape, v_pages", "k_pages.new_zeros(*m.shape, k_pages")),
    ("output as wide as keys", shared_hints.AS_WIDE_AS_KEYS,
     ("v_pages.new_zeros(*m.shape, v_pages", "k_pages.new_zeros(*m.shape, k_pages")),
    ("last token dropped",
     "You leave out the last token of each text. There are `length` tokens, and the newest has "
     "position length − 1.",
     ("range(0, length, page)", "range(0, length - 1, page)"),
     ("min(page, length - start)", "min(page, length - 1 - start)")),
    ("forbidden scores zero",
     "Your scores of the slots after the end of a text are 0, so these slots get weight, because "
     "e^0 = 1. Set these scores to −∞, or leave these slots out.",
     ("min(page, length - start)", "page"),
     (UPDATE, "scores = scores * (torch.arange(page) < length - start)\n            " + UPDATE)),
    ("last page dropped",
     "You leave out the last page of a text if it is not full. Include its tokens.",
     ("range(0, length, page)", "range(0, max(length - page, 0) + 1, page)")),
    ("pages in order",
     "You take pages in the order of the store. A text's pages may lie anywhere in it: for page "
     "i of a text, use k_pages[table[i]] and v_pages[table[i]].",
     ("table[start // page]", "start // page")),
    ("pages after the first",
     "You get this result, or an error, if you read the pages that come after the text's first "
     "page in the store. The pages of a text may lie anywhere, so use page table[i] of the store "
     "as page i of the text.",
     ("table[start // page]", "table[0] + start // page")),
    ("first table for all",
     "You use the first text's table for all texts. Use each text's own table.",
     ("table[start // page]", "tables[0][min(start // page, len(tables[0]) - 1)]")),
    ("KV heads take turns",
     "Your query heads take turns with the KV heads: with two KV heads, the order is 0 1 0 1. "
     "Neighboring query heads must share one, in the order 0 0 1 1.",
     (GROUPS, "query.unflatten(0, (-1, H_kv)).transpose(0, 1)"),
     (".flatten(0, 1))",
      ".transpose(0, 1).flatten(0, 1))")),
    ("heads put back in another order",
     "Your query heads are grouped correctly, but the output heads are in another order. "
     "Return them in the order of q.",
     (GROUPS,
      "query.unflatten(0, (-1, H_kv)).transpose(0, 1)")),
    ("first KV head for all",
     "All your query heads use the first KV head. Each group of H / H_kv neighboring query "
     "heads has its own.",
     ("k.mT", "k[:1].mT"),
     ("scores, v)", "scores, v[:1])")),
    ("not scaled", shared_hints.NOT_SCALED, (" / q.shape[-1] ** 0.5", "")),
    ("scaled twice", shared_hints.SCALED_TWICE, ("q.shape[-1] ** 0.5", "q.shape[-1]")),
    ("pages averaged",
     "Your result is the mean of the pages' outputs. A page with larger scores must count more. "
     "Carry m, ℓ and O from page to page.",
     (UPDATE, "ell, out = ell + 1, out + scores.softmax(dim=-1) @ v")),
    ("pages weighted by length",
     "Your pages are weighted by their number of tokens. A page with larger scores must count "
     "more. Carry m, ℓ and O from page to page.",
     (UPDATE, "ell, out = ell + n, out + n * (scores.softmax(dim=-1) @ v)")),
    ("without maximum", NO_MAXIMUM,
     (UPDATE, "ell, out = ell + scores.exp().sum(dim=-1), out + scores.exp() @ v")),
    ("output not rescaled", OUT_OF_OLD_MAXIMUM,
     (UPDATE, "m, ell, _ = tile_update(m, ell, out, scores, v)\n"
      "            out = out + (scores - m[..., None]).exp() @ v")),
    ("nothing rescaled", BOTH_OF_OLD_MAXIMUM,
     (UPDATE, "m = torch.maximum(m, scores.amax(dim=-1))\n"
      "            p = (scores - m[..., None]).exp()\n"
      "            ell, out = ell + p.sum(dim=-1), out + p @ v")),
    ("maximum begins at zero", shared_hints.STARTS_FINITE, ("-INF)", "0.0)")),
    ("never divided",
     "Your O is not divided by ℓ. Divide each row of O by its ℓ once, after the last page.",
     ("out / ell[..., None]", "out")),
    ("last page alone",
     "You use only the last page. Carry m, ℓ and O from page to page.",
     (UPDATE,
      "ell, out = ell * 0 + 1, scores.softmax(dim=-1) @ v")),
    ("first page alone",
     "You use only the first page of each text. Read all `lengths[b]` tokens of text b.",
     ("range(0, length, page)", "range(0, min(length, page), page)")),
    ("every page cut short",
     "You read only as many slots of every page as the last page has tokens. All earlier pages are "
     "full, so read all of their slots.",
     ("min(page, length - start)", "length % page or page")),
    ("last page filled with zeros",
     "Your result is what you get if the last page is padded with keys and values of 0. Their "
     "scores are 0, so each adds e^(0 − m) to ℓ. Leave these slots out, or set their scores to −∞.",
     ("min(page, length - start)", "page"),
     (UPDATE,
      "there = torch.arange(page) < length - start\n"
      "            scores, v = scores * there, v * there[:, None]\n            " + UPDATE)),
    ("one token too many",
     "You read one slot too many on the last page. The tokens have positions 0 to length − 1.",
     ("min(page, length - start)", "min(page, length + 1 - start)")),
    ("first value head for all",
     "Your scores are right, but all query heads use the first head of v. Query heads share "
     "the heads of v as they share those of k.",
     ("scores, v)", "scores, v[:1])")),
    ("scaled by the width of values", shared_hints.BY_D_V,
     ("q.shape[-1] ** 0.5", "v.shape[-1] ** 0.5")),
    ("sum not rescaled",
     "Your ℓ is not rescaled. Like O, it was computed relative to the old maximum. Multiply it by "
     "e^(m − m_new).",
     (UPDATE, "m, _, out = tile_update(m, ell, out, scores, v)\n"
              "            ell = ell + (scores - m[..., None]).exp().sum(dim=-1)")),
    ("full last page dropped",
     "You leave out the last page if it is full. Then length % page is 0, but the page holds "
     "`page` tokens. Read all of them.",
     ("range(0, length, page)", "range(0, length if length % page else length - page, page)")),
]  # fmt: skip

exercise = Exercise(
    "6.11", paged_attention, inputs, MISTAKES, names="H d_v", run=run,
    also_right=[all_texts_at_once],
)  # fmt: skip
