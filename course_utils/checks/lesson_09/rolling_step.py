"""9.9: decoding with a cache that keeps only the last keys: a bug to fix."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention, rotary
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import NOT_SCALED


def rolling_step(q, k, v, keys, values, window):
    if len(keys) == window:  # full: drop the oldest, move the others back
        keys, values = rotary(keys[1:], -torch.ones(window - 1)), values[1:]
    position = torch.tensor([len(keys)])
    keys = torch.cat([keys, rotary(k, position)])  # (S, d_k)
    values = torch.cat([values, v])  # (S, d_v)
    output, _ = attention(rotary(q, position), keys, values)
    return output, keys, values


def with_unrotated_keys(q, k, v, keys, values, window):
    keys, values = torch.cat([keys, k])[-window:], torch.cat([values, v])[-window:]
    positions = torch.arange(1000, 1000 + len(keys))
    return attention(rotary(q, positions[-1:]), rotary(keys, positions), values)[0], keys, values


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
        text(5, 4, 2, 8),  # the cache is never full
        text(7, 2, 5, 7),
        text(30, 8, 4, 5, dtype=torch.float32),
        text(4, 4, 3, 1),  # each token only sees itself
    ]


def positions_stand_still(q, k, v, keys, values, window):
    """Do what the code in the exercise does."""
    position = torch.tensor([len(keys)])
    keys = torch.cat([keys, rotary(k, position)])[-window:]  # (S, d_k)
    values = torch.cat([values, v])[-window:]  # (S, d_v)
    output, _ = attention(rotary(q, position), keys, values)
    return output, keys, values


THREE = "Return three things: the output, the keys and the values"


def run(answer, q, k, v, window):
    """Decode a text token by token, from empty caches; return all outputs, (L, d_v)."""
    keys, values, outputs = k[:0].clone(), v[:0].clone(), []
    for new in zip(q.split(1), k.split(1), v.split(1), strict=True):
        result = answer(*(each.clone() for each in new), keys, values, window)
        if not isinstance(result, list | tuple) or len(result) != 3:
            raise NamedMistake("not three things", f"{THREE}.")
        output, keys, values = result
        if not all(isinstance(each, torch.Tensor) for each in result):
            raise NamedMistake("not three things", f"{THREE}. All of them must be tensors.")
        if output.shape != new[2].shape:
            hint = f"Your output has shape {tuple(output.shape)}. For one token, return (1, d_v)."
            raise NamedMistake("wrong shape", hint)
        if max(len(keys), len(values)) > window:
            hint = "Your cache has more than `window` rows. Keep only the last `window` tokens."
            raise NamedMistake("outgrows the window", hint)
        outputs.append(output)
    whole = [torch.cat(outputs)]
    if not is_same(in_turns(answer, q, k, v, window), whole[0]):
        hint = (
            "Right for one text. If two texts take turns, yours get mixed up. Store what you keep "
            "only in the keys and values that you return."
        )
        raise NamedMistake("kept outside the cache", hint, whole)
    return whole


def in_turns(answer, q, k, v, window):
    """Decode a text, alternating with the same text reversed; return its outputs."""
    caches, outputs = 2 * [(k[:0], v[:0])], []
    for t in range(len(q)):
        for text, at in enumerate([t, len(q) - 1 - t]):
            new = (each[at : at + 1].clone() for each in (q, k, v))
            output, *caches[text] = answer(*new, *caches[text], window)
            outputs += [output] if text == 0 else []
    return torch.cat(outputs)


FULL = "if len(keys) == window:"
NEVER = (FULL, "if len(keys) > window:")
KEYS, VALUES = "torch.cat([keys, rotary(k, position)])", "torch.cat([values, v])"
RETURN = "return output, keys, values"
BACK = "rotary(keys[1:], -torch.ones(window - 1)), values[1:]"
OUTPUT = "output, _ = attention(rotary(q, position), keys, values)"
AT = "torch.arange(len(keys))"
TOO_LATE = (
    "Once the cache is full, your token attends to window + 1 keys. Remove the oldest key before "
    "attention, not after it."
)
AGAIN = (
    "Keys that were rotated already are rotated again by their positions in the cache. Store "
    "keys without rotation, or rotate only the new one."
)
THE_FIRST = "Your cache keeps the first `window` tokens. Keep the last ones, as [-window:] does."
MISTAKES = [
    ("positions stand still",
     "Your result still has the bug. Once the cache is full, every new token gets the same "
     "position, because the same number of keys comes before it. When the oldest key goes, the "
     "others must move back by one position.",
     positions_stand_still),
    ("new position alone",
     "Your new token is at the last position of the window, but the other keys are still rotated "
     "as before. When the oldest key goes, move them back by one position.",
     (BACK, "keys[1:], values[1:]")),
    ("only the query fixed",
     "Your query is at the last position of the window, but each new key is one position after "
     "it. The other keys are also rotated as before. When the oldest key goes, move them back by "
     "one position.",
     NEVER, (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     ("rotary(q, position)", "rotary(q, torch.tensor([len(keys) - 1]))")),
    ("position 0 when full",
     "Once the cache is full, every new token gets position 0, as with len(keys) % window. But "
     "it comes last. Move the other keys back by one position instead.",
     NEVER, (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     ("[len(keys)]", "[len(keys) % window]")),
    ("last position from the beginning",
     "While the cache fills, all your tokens are at position window − 1. Until it is full, the "
     "position of a token is the number of keys before it.",
     ("[len(keys)]", "[window - 1]")),
    ("rotated on",
     "Your remaining keys move one position forward. When the oldest key goes, move them back.",
     ("-torch.ones", "torch.ones")),
    ("always rotated back",
     "Your keys move back at every call. Before the cache is full, no key goes, so leave them "
     "where they are.",
     (FULL, "keys = rotary(keys, -torch.ones(len(keys)))\n    " + FULL),
     (BACK, "keys[1:], values[1:]")),
    ("rotated back for one call",
     "Your keys move back before they are used, but you return them without this move. The next "
     "call needs the moved keys, so return these.",
     (FULL, "old = keys[1:] if len(keys) == window else keys\n    " + FULL),
     ("return output, keys", "return output, torch.cat([old, keys[-1:]])")),
    ("rotated as rows",
     "Your remaining keys are rotated by 0, 1, 2, …, as if they were not rotated yet. All of "
     "them must move back by one position.",
     ("-torch.ones(window - 1)", "torch.arange(window - 1)")),
    ("one position apart",
     "Your query is one position after its own key. Both belong to the new token, so give them "
     "the same position.",
     (OUTPUT, "output, _ = attention(rotary(q, position + 1), keys, values)")),
    ("one position apart when full",
     "Right until the cache is full. Then your query is one position after its own key. Give "
     "both the same position.",
     (FULL, "full = len(keys) == window\n    " + FULL),
     (OUTPUT, "output, _ = attention(rotary(q, position + full), keys, values)")),
    ("values left",
     "Your keys lose the oldest row, but your values lose the newest one. Remove the same row "
     "from both.",
     ("values[1:]", "values[:-1]")),
    ("newest goes",
     "Your newest key goes. Remove the oldest one, which is the first row.",
     (BACK, "rotary(keys[:-1], -torch.ones(window - 1)), values[:-1]")),
    ("one too few",
     "Your oldest key goes one token too early. Together with the new one, there may be `window` "
     "keys.",
     (FULL, "if len(keys) == window - 1 > 0:"),
     ("-torch.ones(window - 1)", "-torch.ones(len(keys) - 1)")),
    ("begun again",
     "Your cache is emptied when it is full. Remove only the oldest key.",
     (BACK, "keys[:0], values[:0]")),
    ("nothing rotated",
     "Your queries and keys are not rotated, so the order of the keys makes no difference. "
     "Rotate both.",
     ("rotary(k, position)", "k"), ("rotary(q, position)", "q"),
     ("rotary(keys[1:], -torch.ones(window - 1))", "keys[1:]")),
    ("neighbors as pairs",
     "Your keys are paired by neighbors when they move back. They were rotated with halves as "
     "pairs, so use the same layout.",
     ("-torch.ones(window - 1)", "-torch.ones(window - 1), interleaved=True")),
    ("query not rotated",
     "Your query is not rotated. Rotate it by the position of its own key.",
     ("rotary(q, position)", "q")),
    ("oldest goes too late", TOO_LATE, NEVER,
     (RETURN, "if len(keys) > window:\n        keys, values = rotary(keys[1:], "
      "-torch.ones(window)), values[1:]\n    " + RETURN)),
    ("oldest goes too late, positions stand still",
     TOO_LATE + " Then move the other keys back by one position.",
     NEVER, (RETURN, "return output, keys[-window:], values[-window:]")),
    ("all rotated at each call", AGAIN, (BACK, "keys[1:], values[1:]"),
     (KEYS, "rotary(torch.cat([keys, k]), torch.arange(len(keys) + 1))")),
    ("rotated when they come and when they are used", AGAIN, (BACK, "keys[1:], values[1:]"),
     (OUTPUT, f"output, _ = attention(rotary(q, position), rotary(keys, {AT}), values)")),
    ("rotated when they come, cut, and when they are used", AGAIN, NEVER,
     (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     (OUTPUT, f"output, _ = attention(rotary(q, {AT}[-1:]), rotary(keys, {AT}), values)")),
    ("first ones kept", THE_FIRST, NEVER, (KEYS, KEYS + "[:window]"),
     (VALUES, VALUES + "[:window]")),
    ("first ones kept, query at the last", THE_FIRST, NEVER, (KEYS, KEYS + "[:window]"),
     (VALUES, VALUES + "[:window]"),
     ("rotary(q, position)", "rotary(q, position.clamp(max=window - 1))")),
    ("neighbors as pairs throughout",
     "Your positions are right, but you pair neighbors. Leave `interleaved` at its default.",
     ("-torch.ones(window - 1)", "-torch.ones(window - 1), interleaved=True"),
     ("rotary(k, position)", "rotary(k, position, interleaved=True)"),
     ("rotary(q, position)", "rotary(q, position, interleaved=True)")),
    ("not scaled", NOT_SCALED,
     (OUTPUT, "output = (rotary(q, position) @ keys.T).softmax(dim=-1) @ values")),
    ("query at window - 1",
     "Right once the cache is full. Before that, your query is at window − 1, after its own key. "
     "Give both the same position.",
     ("rotary(q, position)", "rotary(q, torch.tensor([window - 1]))")),
]  # fmt: skip

exercise = Exercise(
    "9.9", rolling_step, inputs, MISTAKES, names="L d_v", run=run,
    compared="outputs, token by token", also_right=[with_unrotated_keys, from_zero],
)  # fmt: skip
