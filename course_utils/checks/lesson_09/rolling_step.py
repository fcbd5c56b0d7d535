"""9.9: decoding with a cache that keeps the last keys only, mended where places stood still."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention, rotary
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import NOT_SCALED


def rolling_step(q, k, v, keys, values, window):
    if len(keys) == window:  # full: the oldest goes, and all others move one place back
        keys, values = rotary(keys[1:], -torch.ones(window - 1)), values[1:]
    place = torch.tensor([len(keys)])
    keys = torch.cat([keys, rotary(k, place)])  # (S, d_k)
    values = torch.cat([values, v])  # (S, d_v)
    output, _ = attention(rotary(q, place), keys, values)
    return output, keys, values


def with_unrotated_keys(q, k, v, keys, values, window):
    keys, values = torch.cat([keys, k])[-window:], torch.cat([values, v])[-window:]
    places = torch.arange(1000, 1000 + len(keys))
    return attention(rotary(q, places[-1:]), rotary(keys, places), values)[0], keys, values


def from_zero(q, k, v, keys, values, window):
    keys = torch.cat([rotary(keys, -torch.ones(len(keys))), k])[-window:]
    values = torch.cat([values, v])[-window:]
    (output,) = F.scaled_dot_product_attention(q[None], keys[None], values[None])
    return output, keys, values


def inputs():
    """Return (q, k, v, window) of whole texts."""
    normal = normals(99)

    def text(L, d_k, d_v, window, dtype=torch.float64):
        return *(normal(L, width, dtype=dtype) for width in (d_k, d_k, d_v)), window

    return [
        text(9, 4, 3, 4),
        text(14, 6, 2, 3),
        text(5, 4, 2, 8),  # never full
        text(7, 2, 5, 7),
        text(30, 8, 4, 5, dtype=torch.float32),
        text(4, 4, 3, 1),  # each token sees itself alone
    ]


def places_stand_still(q, k, v, keys, values, window):
    """Do as the code that the learner is given."""
    place = torch.tensor([len(keys)])
    keys = torch.cat([keys, rotary(k, place)])[-window:]  # (S, d_k)
    values = torch.cat([values, v])[-window:]  # (S, d_v)
    output, _ = attention(rotary(q, place), keys, values)
    return output, keys, values


THREE = "return three things: the output, the keys and the values to be kept"


def run(answer, q, k, v, window):
    """Decode a text token by token, from empty caches; return all outputs, (L, d_v)."""
    keys, values, outputs = k[:0].clone(), v[:0].clone(), []
    for new in zip(q.split(1), k.split(1), v.split(1), strict=True):
        result = answer(*(each.clone() for each in new), keys, values, window)
        if not isinstance(result, list | tuple) or len(result) != 3:
            raise NamedMistake("not three things", THREE)
        output, keys, values = result
        if not all(isinstance(each, torch.Tensor) for each in result):
            raise NamedMistake("not three things", f"{THREE}, all tensors")
        if output.shape != new[2].shape:
            hint = f"output has shape {tuple(output.shape)}; one token's is (1, d_v)"
            raise NamedMistake("wrong shape", hint)
        if max(len(keys), len(values)) > window:
            hint = "the cache outgrows the window: no more than the last `window` are kept"
            raise NamedMistake("outgrows the window", hint)
        outputs.append(output)
    whole = [torch.cat(outputs)]
    if not is_same(in_turns(answer, q, k, v, window), whole[0]):
        hint = (
            "right for one text, but two texts decoded in turns are mixed up: what is kept must be "
            "in the keys and values that are returned, not anywhere else"
        )
        raise NamedMistake("kept outside the cache", hint, whole)
    return whole


def in_turns(answer, q, k, v, window):
    """Return the outputs of a text if it is decoded in turns with itself read backwards."""
    caches, outputs = 2 * [(k[:0], v[:0])], []
    for t in range(len(q)):
        for text, at in enumerate([t, len(q) - 1 - t]):
            new = (each[at : at + 1].clone() for each in (q, k, v))
            output, *caches[text] = answer(*new, *caches[text], window)
            outputs += [output] if text == 0 else []
    return torch.cat(outputs)


FULL = "if len(keys) == window:"
NEVER = (FULL, "if len(keys) > window:")
KEYS, VALUES = "torch.cat([keys, rotary(k, place)])", "torch.cat([values, v])"
RETURN = "return output, keys, values"
BACK = "rotary(keys[1:], -torch.ones(window - 1)), values[1:]"
OUTPUT = "output, _ = attention(rotary(q, place), keys, values)"
AT = "torch.arange(len(keys))"
TOO_LATE = "once full, each token attends to window + 1 keys: the oldest goes before, not after"
AGAIN = (
    "keys that were turned already are turned again by their places in the cache: keep them "
    "unturned, or turn only the new one"
)
THE_FIRST = "the first `window` tokens are kept, by [:window]; the last are [-window:]"
MISTAKES = [
    ("places stand still",
     "once the cache is full every new token gets the same place, as there are always as many keys "
     "before it; that is the bug: what of the keys that stay when the oldest goes?",
     places_stand_still),
    ("new place alone",
     "the new token stands at the last place of the window, but the keys that stay are still "
     "turned as before: they all move one place back when the oldest goes",
     (BACK, "keys[1:], values[1:]")),
    ("query alone mended",
     "the query stands at the last place of the window, but each new key at the place after it, "
     "and the keys that stay are turned as before: they move one place back when the oldest goes",
     NEVER, (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     ("rotary(q, place)", "rotary(q, torch.tensor([len(keys) - 1]))")),
    ("place 0 when full",
     "once the cache is full every new token gets place 0, as by len(keys) % window, and so stands "
     "as if it came first: it comes last, and the keys that stay move one place back",
     NEVER, (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     ("[len(keys)]", "[len(keys) % window]")),
    ("last place from the beginning",
     "while the cache fills, all tokens get its last place, window − 1: until it is full a token's "
     "place is the number of keys before it", ("[len(keys)]", "[window - 1]")),
    ("turned on",
     "the keys that stay are turned one place further on: when the oldest goes, they move back",
     ("-torch.ones", "torch.ones")),
    ("always turned back",
     "the keys move back at every call; before the cache is full, none goes and all stay where "
     "they are",
     (FULL, "keys = rotary(keys, -torch.ones(len(keys)))\n    " + FULL),
     (BACK, "keys[1:], values[1:]")),
    ("turned back for one call",
     "the keys move back before they are used, but those returned have not moved: the next call "
     "finds them where they were",
     (FULL, "old = keys[1:] if len(keys) == window else keys\n    " + FULL),
     ("return output, keys", "return output, torch.cat([old, keys[-1:]])")),
    ("turned as rows",
     "the keys are turned by 0, 1, 2, …, as if they were not turned yet: those that stay move one "
     "place back, all alike",
     ("-torch.ones(window - 1)", "torch.arange(window - 1)")),
    ("one place apart",
     "the query stands one place further than its own key: both are the new token's, so both have "
     "one place",
     (OUTPUT, "output, _ = attention(rotary(q, place + 1), keys, values)")),
    ("one place apart when full",
     "right until the cache is full; then the query stands one place further than its own key",
     (FULL, "full = len(keys) == window\n    " + FULL),
     (OUTPUT, "output, _ = attention(rotary(q, place + full), keys, values)")),
    ("values left", "the keys lose their oldest, the values their newest: keys and values no "
     "longer belong together", ("values[1:]", "values[:-1]")),
    ("newest goes", "the newest key goes; the oldest is the first",
     (BACK, "rotary(keys[:-1], -torch.ones(window - 1)), values[:-1]")),
    ("one too few",
     "the oldest goes one token too early: together with the new one there may be `window`",
     (FULL, "if len(keys) == window - 1 > 0:"),
     ("-torch.ones(window - 1)", "-torch.ones(len(keys) - 1)")),
    ("begun again", "the cache is emptied when it is full; only the oldest key goes",
     (BACK, "keys[:0], values[:0]")),
    ("nothing turned", "nothing is turned: a cache without places answers as a bag",
     ("rotary(k, place)", "k"), ("rotary(q, place)", "q"),
     ("rotary(keys[1:], -torch.ones(window - 1))", "keys[1:]")),
    ("neighbours as pairs", "neighbours are paired when keys move back; they were turned by halves",
     ("-torch.ones(window - 1)", "-torch.ones(window - 1), interleaved=True")),
    ("query not turned", "the query is not turned; it stands where its key stands",
     ("rotary(q, place)", "q")),
    ("oldest goes too late", TOO_LATE, NEVER,
     (RETURN, "if len(keys) > window:\n        keys, values = rotary(keys[1:], "
      "-torch.ones(window)), values[1:]\n    " + RETURN)),
    ("oldest goes too late, places stand still",
     TOO_LATE + "; and the keys that stay move one place back",
     NEVER, (RETURN, "return output, keys[-window:], values[-window:]")),
    ("all turned at each call", AGAIN, (BACK, "keys[1:], values[1:]"),
     (KEYS, "rotary(torch.cat([keys, k]), torch.arange(len(keys) + 1))")),
    ("turned when they come and when they are used", AGAIN, (BACK, "keys[1:], values[1:]"),
     (OUTPUT, f"output, _ = attention(rotary(q, place), rotary(keys, {AT}), values)")),
    ("turned when they come, cut, and when they are used", AGAIN, NEVER,
     (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     (OUTPUT, f"output, _ = attention(rotary(q, {AT}[-1:]), rotary(keys, {AT}), values)")),
    ("first ones kept", THE_FIRST, NEVER, (KEYS, KEYS + "[:window]"),
     (VALUES, VALUES + "[:window]")),
    ("first ones kept, query at the last", THE_FIRST, NEVER, (KEYS, KEYS + "[:window]"),
     (VALUES, VALUES + "[:window]"),
     ("rotary(q, place)", "rotary(q, place.clamp(max=window - 1))")),
    ("neighbours as pairs throughout",
     "right places, but neighbours are paired: leave `interleaved` as it is",
     ("-torch.ones(window - 1)", "-torch.ones(window - 1), interleaved=True"),
     ("rotary(k, place)", "rotary(k, place, interleaved=True)"),
     ("rotary(q, place)", "rotary(q, place, interleaved=True)")),
    ("not scaled", NOT_SCALED,
     (OUTPUT, "output = (rotary(q, place) @ keys.T).softmax(dim=-1) @ values")),
    ("query at window - 1",
     "right once the cache is full; before, the query stands at window − 1, beyond its own key",
     ("rotary(q, place)", "rotary(q, torch.tensor([window - 1]))")),
]  # fmt: skip

exercise = Exercise(
    "9.9", rolling_step, inputs, MISTAKES, names="L d_v", run=run,
    compared="outputs, token by token", also_right=[with_unrotated_keys, from_zero],
)  # fmt: skip
