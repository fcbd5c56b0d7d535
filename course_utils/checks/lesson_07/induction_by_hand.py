"""7.9: matrices of two layers that continue a repeating text, without training."""

import math

import torch
import torch.nn.functional as F

from course_utils.attention import attention, causal_mask
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def induction_by_hand(V, L):
    large = 1000.0  # so that softmax leaves no weight for other keys
    token, note, answer = (slice(i * V, (i + 1) * V) for i in range(3))
    W_q, W_k, W_v = torch.zeros(3 * V + L, L), torch.zeros(3 * V + L, L), torch.zeros(3 * V, 3 * V)
    W_q[3 * V :] = large * torch.eye(L)  # query i asks for i
    W_k[3 * V :] = torch.eye(L).roll(1, dims=1)  # key j offers j + 1
    W_v[token, note] = torch.eye(V)
    first = W_q, W_k, W_v
    W_q, W_k = torch.zeros(3 * V + L, V + 1), torch.zeros(3 * V + L, V + 1)
    W_q[token, :V] = large * torch.eye(V)
    W_k[note, :V] = torch.eye(V)
    W_q[token, V] = large  # every query avoids
    W_k[3 * V, V] = -1  # the key at position 0, whose note is its own token
    W_v = torch.zeros(3 * V, 3 * V)
    W_v[token, answer] = torch.eye(V)
    return first, (W_q, W_k, W_v)


def by_angles(V, L):
    """Positions are angles, two numbers each, and no token attends to position 0."""
    angles = torch.arange(L + 1.0) * 2 * math.pi / (L + 1)
    circle = torch.stack([angles.cos(), angles.sin()], dim=-1) * 300  # (L + 1, 2)
    eye = torch.eye(V)
    blank = torch.zeros(3 * V, 2)
    move = torch.zeros(3 * V, 3 * V)
    move[:V, V : 2 * V] = eye
    layer_1 = torch.cat([blank, circle[:-1]]), torch.cat([blank, circle[1:]]), move
    q, k = torch.zeros(3 * V + L, V), torch.zeros(3 * V + L, V)
    q[:V], k[V : 2 * V] = 500 * eye, eye
    k[3 * V] = -2
    W_v = torch.zeros(3 * V, 3 * V)
    W_v[:V, 2 * V :] = 7 * eye
    return [list(layer_1), [q, k, W_v]]


def inputs():
    """Return (V, L, number of texts, shortest and longest period)."""
    return [(9, 20, 6, 3, 8), (12, 31, 5, 2, 12), (5, 9, 8, 2, 4), (30, 64, 4, 10, 30)]


def read(tokens, layers, V):
    """Return what layer 0 wrote (B, L, 3·V), the answers (B, L, V), and both layers' weights."""
    B, L = tokens.shape
    x = F.pad(F.one_hot(tokens, V).float(), (0, 2 * V))  # (B, L, 3·V): token, note, answer
    positions, seen, written = torch.eye(L).expand(B, L, L), [], []
    for W_q, W_k, W_v in layers:
        placed = torch.cat([x, positions], dim=-1)  # (B, L, 3·V + L)
        found, weights = attention(placed @ W_q, placed @ W_k, x @ W_v, causal_mask(L))
        x, seen, written = x + found, [*seen, weights], [*written, found]
    return written[0], x[..., 2 * V :], *seen


def run(answer, V, L, B, shortest, longest):
    """Run the layers on repeating texts; return 1 if every answer is right, else raise a hint."""
    layers = matrices(call_with_clones(answer, V, L)[0], V, L)
    rng = torch.Generator().manual_seed(79)
    periods = torch.randint(shortest, longest + 1, (B, 1), generator=rng)
    patterns = torch.rand(B, V, generator=rng).argsort(dim=-1)  # no token twice in a period
    tokens = patterns.gather(1, torch.arange(L + 1) % periods)  # (B, L + 1)
    wrote, answers, first, second = read(tokens[:, :-1], layers, V)
    wanted = F.one_hot(tokens[:, 1:], V).bool()
    known = torch.arange(L) >= periods  # (B, L), the token has occurred before
    others = answers.masked_fill(wanted, 0).amax(dim=-1)
    if (answers[wanted].view(B, L) > 2 * others)[known].all():
        return [torch.ones(())]
    hint = what_is_missing(first, wrote, second, tokens[:, :-1], periods)
    if hint == NOTHING_READ:
        arrived = answers[wanted].view(B, L)[known]
        arrived = arrived[arrived <= 2 * others[known]] / answers.abs().max()  # where it is wrong
        hint = BESIDE if (arrived > 0.1).all() else MINUS if (arrived < -0.1).all() else hint
    raise NamedMistake("no induction", hint)


def matrices(layers, V, L):
    """Return the matrices of both layers; raise a hint if `two_layers` cannot use them."""
    wide, x = 3 * V + L, 3 * V
    try:
        (q, k, v), (q2, k2, v2) = layers
        fits = all(a.shape == b.shape and len(a) == wide for a, b in ((q, k), (q2, k2)))
        fits = fits and v.shape == v2.shape == (x, x)
    except (TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        hint = (
            "Return two triples (W_q, W_k, W_v), layer 0 first. W_q and W_k must have shape "
            f"(3·V + L, d_k), and W_v (3·V, 3·V). Here 3·V + L = {wide} and 3·V = {x}."
        )
        raise NamedMistake("wrong shapes", hint)
    kinds = {W.dtype for triple in layers for W in triple} - {torch.float32}
    if kinds:
        hint = (
            f"two_layers raises an error for {kinds.pop()}. Return all six matrices in float32, as "
            "torch.zeros does."
        )
        raise NamedMistake("not in float32", hint)
    if not all(W.isfinite().all() for triple in layers for W in triple):
        hint = (
            "A matrix contains infinity or NaN, and ∞ · 0 is NaN. A large number such as 1000 is "
            "enough."
        )
        raise NamedMistake("infinite", hint)
    return layers


SELF = (
    "Layer 0 attends to the token itself. Query i must match key i − 1, so shift the positions by "
    "one."
)
NOT_BEFORE = (
    "Layer 0 does not attend to the previous token. It must do so whatever the tokens are. So use "
    "only the positions, and check the direction in which they are shifted."
)
SOFT = (
    "attends most to the right key, but leaves too much weight on others. Scores are divided by "
    "√d_k, so make them larger."
)
OVERFLOW = (
    "Your weights contain NaN. Scores that are too large overflow to ∞, and ∞ − ∞ is NaN. A factor "
    "of 1000 is enough."
)
START = (
    "Your answers are wrong only where the first token of the text occurs again. Position 0 sees "
    "only itself, so its note names its own token. Keep layer 1 from attending to position 0."
)
SECOND = (
    "Your answers are wrong only where the first token occurs again for the first time. Its answer "
    "is at position 1, and layer 1 does not prefer this position. Exclude only position 0."
)
WRITES = (
    "Layer 0 attends to the right key, but what it writes into the note is not the previous "
    "token. In x @ W_v, the rows of W_v stand for what is read, and the columns for where it is "
    "written. Put the identity in the rows of *token* and the columns of *note*, and 0 "
    "elsewhere."
)
OCCURRENCE = (
    "Layer 1 attends to earlier copies of the query's own token. It must attend to the positions "
    "after them. Compare the query with the *notes* of the keys instead."
)
NOT_AFTER = (
    "Layer 0 is right. But layer 1 does not attend to the keys whose note is the query's own "
    "token. If the previous token is stored in *note*, let W_q of layer 1 read *token*, and W_k "
    "read *note*."
)
NOTHING_READ = (
    "Both layers attend to the right keys, but the answer block is wrong. W_v of layer 0 must copy "
    "*token* into *note*, and W_v of layer 1 *token* into *answer*."
)
MINUS = (
    "Both layers attend to the right keys, but the answers are negative. The right entry must be "
    "the largest, so use +1 in W_v of layer 1."
)
BESIDE = (
    "Both layers attend to the right keys, but the answer block holds something else as well. W_v "
    "of layer 1 must copy only *token* into *answer*."
)


def is_noted(wrote, tokens):
    """Return whether layer 0 wrote the previous token into each note, and nothing elsewhere."""
    token, note, answer = wrote[:, 1:].chunk(3, dim=-1)  # (B, L - 1, V) each
    right = (note.argmax(dim=-1) == tokens[:, :-1]).all()
    return right and max(token.abs().max(), answer.abs().max()) < 0.1 * note.max()


def leads(weights, keys):
    """Return (B, L), for which queries one of the keys has clearly more weight than all others."""
    return (weights * keys).amax(dim=-1) > 1.01 * (weights * ~keys).amax(dim=-1)


def what_is_missing(first, wrote, second, tokens, periods):
    """Return a hint about the first layer whose weights are wrong."""
    if first.isnan().any() or second.isnan().any():
        return OVERFLOW
    L = tokens.shape[1]
    i, j = torch.arange(L)[:, None], torch.arange(L)  # queries, keys
    before = first.diagonal(-1, dim1=-2, dim2=-1)  # (B, L - 1)
    if before.min() < 0.9:
        for distance, hint in ((1, f"Layer 0 {SOFT}"), (0, SELF)):
            if leads(first, i - j == distance)[:, 1:].all():
                return hint
        return NOT_BEFORE
    if not is_noted(wrote, tokens):
        return WRITES
    known = torch.arange(L) >= periods  # (B, L)
    back = (i - j)[None] % periods[..., None]  # (B, L, L), 0 at occurrences of the query's token
    wanted = (back == periods[..., None] - 1) & (j > 0)  # (B, L, L), the positions after them
    astray = known & ((second * wanted).sum(dim=-1) < 0.9)  # (B, L)
    if not astray.any():
        return NOTHING_READ
    if (torch.arange(L) % periods == 0)[astray].all():  # where the first token occurs again
        if leads(second * ~wanted, j == 0)[astray].all():
            return START
        once = (torch.arange(L) == periods)[astray].all()
        return SECOND if once and not leads(second, wanted)[astray].any() else NOT_AFTER
    if ((second * (back == 0)).sum(dim=-1)[known] > 0.9).all():
        return OCCURRENCE
    return f"Layer 1 {SOFT}" if leads(second, wanted)[known].all() else NOT_AFTER


MISTAKES = [
    ("looks at itself", SELF, (".roll(1, dims=1)", "")),
    ("wants the next token", NOT_BEFORE, (".roll(1, dims=1)", ".roll(-1, dims=1)")),
    ("not large enough", f"Layer 0 {SOFT}", ("large = 1000.0", "large = 1.0")),
    ("overflow", OVERFLOW,
     ("large = 1000.0", "large = 1e20"), ("torch.eye(L).roll", "large * torch.eye(L).roll")),
    ("first token follows itself", START, ("W_k[3 * V, V] = -1", "W_k[3 * V, V] = 0")),
    ("place 1 shut out too", SECOND, ("W_k[3 * V, V] = -1", "W_k[3 * V : 3 * V + 2, V] = -1")),
    ("looks at the occurrence", OCCURRENCE, ("W_k[note, :V]", "W_k[token, :V]")),
    ("second layer soft", f"Layer 1 {SOFT}",
     ("= large * torch.eye(V)", "= 2 * torch.eye(V)")),
    ("tokens do not matter", NOT_AFTER, ("W_k[note, :V]", "W_k[answer, :V]")),
    ("not written into the note", WRITES, ("W_v[token, note]", "W_v[note, token]")),
    ("answer with a minus", MINUS, ("W_v[token, answer] =", "W_v[token, answer] = -")),
    ("note handed over too", BESIDE,
     ("W_v[token, answer] =", "W_v[token, answer] = W_v[note, answer] =")),
    ("nothing handed over", NOTHING_READ, ("W_v[token, answer]", "W_v[note, answer]")),
]  # fmt: skip

exercise = Exercise("7.9", induction_by_hand, inputs, MISTAKES, run=run, also_right=[by_angles])
