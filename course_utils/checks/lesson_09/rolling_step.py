"""9.9: decoding with a cache that keeps only the last keys: a bug to fix."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention, rotary
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import INTERLEAVED, NOT_SCALED, VALUES_ROTATED


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
        text(9, 4, 6, 4),
        text(14, 6, 2, 3),
        text(5, 4, 2, 8),  # the cache is never full
        text(7, 2, 4, 7),
        text(30, 8, 4, 5, dtype=torch.float32),
        text(4, 4, 6, 1),  # each token only sees itself
    ]


def positions_stand_still(q, k, v, keys, values, window):
    """Do what the code in the exercise does."""
    position = torch.tensor([len(keys)])
    keys = torch.cat([keys, rotary(k, position)])[-window:]  # (S, d_k)
    values = torch.cat([values, v])[-window:]  # (S, d_v)
    output, _ = attention(rotary(q, position), keys, values)
    return output, keys, values


def attends_first(q, k, v, keys, values, window):
    """Attend to the cached tokens alone, then append the new one; keep unrotated keys."""
    at, new = torch.arange(len(keys)), torch.tensor([len(keys)])
    output, _ = attention(rotary(q, new), rotary(keys, at), values)
    return output, torch.cat([keys, k])[-window:], torch.cat([values, v])[-window:]


THREE = "Return three things: the output, the keys and the values"
OTHER_ORDER = f"You return the values before the keys. {THREE}, in this order."


def run(answer, q, k, v, window):
    """Decode a text token by token, from empty caches; return all outputs, (L, d_v)."""
    keys, values, outputs = k[:0].clone(), v[:0].clone(), []
    for new in zip(q.split(1), k.split(1), v.split(1), strict=True):
        try:
            result = answer(*(each.clone() for each in new), keys, values, window)
        except RuntimeError as error:  # in the second call
            if (keys.shape[1:], values.shape[1:]) == (v.shape[1:], k.shape[1:]):
                raise NamedMistake("another order", OTHER_ORDER) from error
            raise
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
            if window == 1:  # with larger windows, all went well
                hint = (
                    "If `window` is 1, your cache has more than one row. If you slice with "
                    "-(window - 1), this is [-0:], which keeps all rows."
                )
            raise NamedMistake("outgrows the window", hint)
        outputs.append(output)
    whole = [torch.cat(outputs)]
    if not is_same(in_turns(answer, q, k, v, window), whole[0]):
        hint = (
            "Right for one text. If two texts take turns, your code mixes them up. Store what you "
            "keep only in the keys and values that you return."
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
    "Once the cache is full, your token attends to window + 1 keys. Drop the oldest key before you "
    "compute attention, not after it."
)
AGAIN = (
    "You rotate keys by their positions in the cache, although they have already been rotated. "
    "Return the keys without rotation, and rotate all of them for attention at each call."
)
THE_FIRST = (
    "Your cache keeps the first `window` tokens. Keep the last ones: when the cache is full, drop "
    "the oldest key and value. If you keep rotated keys, then rotate the others back by one "
    "position."
)
NOT_ITSELF = (
    "Your token attends only to the tokens before it. It must also attend to itself, so append its "
    "key and value before you compute attention."
)
MISTAKES = [
    ("positions stand still",
     "Your code still has the bug. Once the cache is full, every new token gets the same position, "
     "because the same number of keys comes before it. When the cache is full, drop the oldest key "
     "first, and rotate the others back by one position.",
     positions_stand_still),
    ("new position alone",
     "Your new token is at position `window − 1`, but the other keys keep their old rotation. When "
     "you drop the oldest key, rotate the others back by one position.",
     (BACK, "keys[1:], values[1:]")),
    ("only the query fixed",
     "Your query is at position `window − 1`, but its own key is at position `window`, and the "
     "other keys keep their old rotation. When the cache is full, drop the oldest key first, and "
     "rotate the others back by one position. Then the new key is at `window − 1`, too.",
     NEVER, (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     ("rotary(q, position)", "rotary(q, torch.tensor([len(keys) - 1]))")),
    ("position 0 when full",
     "Once the cache is full, every new token gets position 0, as with len(keys) % window. But the "
     "new token comes last. When the cache is full, drop the oldest key first, and rotate the "
     "others back by one position.",
     NEVER, (KEYS, KEYS + "[-window:]"), (VALUES, VALUES + "[-window:]"),
     ("[len(keys)]", "[len(keys) % window]")),
    ("last position from the beginning",
     "While the cache fills, you put every token at position `window − 1`, so all distances are 0. "
     "Until the cache is full, use the number of keys before a token as its position.",
     ("[len(keys)]", "[window - 1]")),
    ("rotated on",
     "You rotate the remaining keys forward by one position. Rotate them back by one position.",
     ("-torch.ones", "torch.ones")),
    ("always rotated back",
     "You rotate the keys back at every call. Before the cache is full, no key is dropped, so "
     "leave all keys as they are.",
     (FULL, "keys = rotary(keys, -torch.ones(len(keys)))\n    " + FULL),
     (BACK, "keys[1:], values[1:]")),
    ("rotated back for one call",
     "You rotate the keys back for attention, but you return them without this rotation. The next"
     " call needs it, so return the rotated keys.",
     (FULL, "old = keys[1:] if len(keys) == window else keys\n    " + FULL),
     ("return output, keys", "return output, torch.cat([old, keys[-1:]])")),
    ("rotated as rows",
     "You rotate the remaining keys by 0, 1, 2, … positions, as if they were not rotated yet. "
     "Rotate each of them back by one position.",
     ("-torch.ones(window - 1)", "torch.arange(window - 1)")),
    ("one position apart",
     "Your query is one position after its own key. Give both the same position.",
     (OUTPUT, "output, _ = attention(rotary(q, position + 1), keys, values)")),
    ("one position apart when full",
     "Right until the cache is full. Then your query is one position after its own key. Give "
     "both the same position.",
     (FULL, "full = len(keys) == window\n    " + FULL),
     (OUTPUT, "output, _ = attention(rotary(q, position + full), keys, values)")),
    ("values left",
     "You drop the oldest key, but the newest value. Drop the oldest row from both caches.",
     ("values[1:]", "values[:-1]")),
    ("newest goes",
     "You drop the newest key and value. Drop the oldest key and value, in the first row of each "
     "cache.",
     (BACK, "rotary(keys[:-1], -torch.ones(window - 1)), values[:-1]")),
    ("one too few",
     "You drop the oldest key one token too early. Together with the new key, there may be "
     "`window` keys.",
     (FULL, "if len(keys) == window - 1 > 0:"),
     ("-torch.ones(window - 1)", "-torch.ones(len(keys) - 1)")),
    ("begun again",
     "Your cache is emptied when it is full. Drop only the oldest row. If you keep rotated keys, "
     "then rotate the others back by one position.",
     (BACK, "keys[:0], values[:0]")),
    ("nothing rotated",
     "Your queries and keys are not rotated, so the order of the keys makes no difference. Rotate"
     " both by their positions.",
     ("rotary(k, position)", "k"), ("rotary(q, position)", "q"),
     ("rotary(keys[1:], -torch.ones(window - 1))", "keys[1:]")),
    ("neighbors as pairs",
     "You rotate the remaining keys back with the interleaved layout. They were rotated with the "
     "halves layout. Use the halves layout here, too.",
     ("-torch.ones(window - 1)", "-torch.ones(window - 1), interleaved=True")),
    ("one position apart, the other way",
     "Your query is one position before its own key. Give both the same position.",
     (OUTPUT, "output, _ = attention(rotary(q, position - 1), keys, values)")),
    ("another order", OTHER_ORDER, (RETURN, "return output, values, keys")),
    ("distances mirrored",
     "Your distances have the wrong sign, as if each key came after the query. Give older tokens "
     "smaller positions.",
     (KEYS, "torch.cat([keys, rotary(k, -position)])"), ("-torch.ones", "torch.ones"),
     ("rotary(q, position)", "rotary(q, -position)")),
    ("values rotated at each call", VALUES_ROTATED,
     (OUTPUT, f"output, _ = attention(rotary(q, position), keys, rotary(values, {AT}))")),
    ("values rotated", VALUES_ROTATED,
     (VALUES, "torch.cat([values, rotary(v, position)])")),
    ("first token kept",
     "Your cache keeps the first token of the text and drops later ones. Drop the oldest row, "
     "which is the first.",
     (BACK, "(torch.cat([keys[:1], rotary(keys[2:], -torch.ones(window - 2))]), "
      "torch.cat([values[:1], values[2:]])) if window > 1 else (keys[:0], values[:0])")),
    ("itself not seen, oldest gone", NOT_ITSELF,
     (OUTPUT, OUTPUT.replace("keys, values)", "keys[:-1], values[:-1])"))),
    ("itself not seen", NOT_ITSELF, attends_first),
    ("itself not seen, except the first", NOT_ITSELF,
     lambda q, k, v, keys, values, window: (
         attends_first(q, k, v, keys, values, window) if len(keys) else (v, k, v))),
    ("query not rotated",
     "Your query is not rotated. Rotate it by the position of its own key.",
     ("rotary(q, position)", "q")),
    ("oldest goes too late", TOO_LATE, NEVER,
     (RETURN, "if len(keys) > window:\n        keys, values = rotary(keys[1:], "
      "-torch.ones(window)), values[1:]\n    " + RETURN)),
    ("oldest goes too late, positions stand still",
     TOO_LATE + " Then rotate the other keys back by one position.",
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
    ("neighbors as pairs throughout", INTERLEAVED,
     ("-torch.ones(window - 1)", "-torch.ones(window - 1), interleaved=True"),
     ("rotary(k, position)", "rotary(k, position, interleaved=True)"),
     ("rotary(q, position)", "rotary(q, position, interleaved=True)")),
    ("not scaled", NOT_SCALED,
     (OUTPUT, "output = (rotary(q, position) @ keys.T).softmax(dim=-1) @ values")),
    ("query at window - 1",
     "Right once the cache is full. Before that, your query is at position `window − 1`, which is "
     "after its own key. Give both the same position.",
     ("rotary(q, position)", "rotary(q, torch.tensor([window - 1]))")),
]  # fmt: skip

exercise = Exercise(
    "9.9", rolling_step, inputs, MISTAKES, names="L d_v", run=run,
    compared="outputs, token by token", also_right=[with_unrotated_keys, from_zero],
)  # fmt: skip
