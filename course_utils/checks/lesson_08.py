"""Lesson 08's exercises: what a picture of attention shows, and measures that put it to a test.

All probes are float32, as weights mostly are: a right answer may hold an identity of that type.
"""

import torch

from course_utils.checks.engine import Exercise


def _weights(rng, *shape):
    """Return distributions over the last dimension, uneven."""
    return (3 * torch.randn(*shape, generator=rng)).softmax(dim=-1)


# 8.1 leave_one_out


def leave_one_out(predict, x):
    without = [torch.cat([x[:t], x[t + 1 :]]) for t in range(len(x))]
    return torch.stack([(predict(x) - predict(each)).abs() for each in without])


def _pooled(x):
    """Average by weights that the tokens set themselves; the number of tokens counts too."""
    return (x[:, 0].softmax(dim=0) @ x).tanh().sum() + 0.1 * len(x)


def _recurrent(x):
    state = x.new_zeros(x.shape[1])
    for token in x:
        state = (0.5 * state + token).tanh()
    return state.sum()


def _predictors():
    rng = torch.Generator().manual_seed(81)
    return [
        (predict, torch.randn(L, d, generator=rng))
        for predict in (_pooled, _recurrent)
        for L, d in [(5, 3), (7, 4), (4, 6)]
    ]


one_out = Exercise("8.1", leave_one_out, _predictors, names="L")


def _by_token(score):
    """Return an answer that scores each token by itself."""

    def answer(predict, x):
        return torch.stack([score(predict, x, t) for t in range(len(x))])

    return answer


def _cut(x, t):
    return torch.cat([x[:t], x[t + 1 :]])


def _zeroed(x, t):
    changed = x.clone()
    changed[t] = 0
    return changed


for _name, _hint, _score in [
    (
        "sign kept",
        "right differences, with their signs; how far it moves is their size: abs",
        lambda f, x, t: f(x) - f(_cut(x, t)),
    ),
    (
        "difference turned round",
        "after minus before, and with its sign; how far it moves is the size: abs",
        lambda f, x, t: f(_cut(x, t)) - f(x),
    ),
    (
        "zeroed instead of removed",
        "the token is set to zero and still stands there, taking weight and a step; remove its row",
        lambda f, x, t: (f(x) - f(_zeroed(x, t))).abs(),
    ),
    (
        "only the token kept",
        "that keeps token t alone and removes all others; it is the other way round",
        lambda f, x, t: (f(x) - f(x[t : t + 1])).abs(),
    ),
    (
        "the rest cut off too",
        "what follows token t is gone as well: join the tokens before it and those after it",
        lambda f, x, t: (f(x) - f(x[:t])).abs(),
    ),
    (
        "prediction without the token",
        "that is the prediction without each token; compare it with the one for all tokens",
        lambda f, x, t: f(_cut(x, t)),
    ),
    (
        "difference squared",
        "the differences are squared; take their size, abs",
        lambda f, x, t: (f(x) - f(_cut(x, t))) ** 2,
    ),
    (
        "neighbour removed",
        "off by one: entry t is about token t, and the row removed is another",
        lambda f, x, t: (f(x) - f(_cut(x, (t + 1) % len(x)))).abs(),
    ),
]:
    _wrong = _by_token(_score)
    _wrong.__name__ = _name.replace(" ", "_")
    one_out.mistake(_hint)(_wrong)


# 8.2 kendall_tau


def kendall_tau(a, b):
    order_a, order_b = _order(a), _order(b)
    return (order_a * order_b).sum() / (order_a.square().sum() * order_b.square().sum()).sqrt()


def _order(a):
    """Return the signs (n, n) of all differences between entries of a (n,)."""
    return (a[:, None] - a).sign()


def _rankings():
    rng = torch.Generator().manual_seed(82)
    a, b = torch.randn(2, 9, generator=rng)
    c = torch.randn(6, generator=rng)
    tied = torch.tensor([3.0, 1.0, 3.0, 2.0, 2.0, 0.5, 3.0])
    free = torch.randn(7, generator=rng)
    return [
        (a, b),
        (c, c**3),  # the same order, other distances
        (a, a.exp() + b / 4),
        (tied, free),
        (tied, torch.tensor([4.0, 1.0, 5.0, 2.0, 4.0, 4.0, 2.0])),
        (1000 * b, -a),
    ]


tau = Exercise("8.2", kendall_tau, _rankings)


@tau.mistake(
    "right without ties; where entries tie, divide by √(n_a · n_b), the pairs that do not tie, and "
    "not by all pairs"
)
def all_pairs_counted(a, b):
    n = len(a)
    return (_order(a) * _order(b)).sum() / (n * (n - 1))


@tau.mistake("the root is missing: divide by √(n_a · n_b); that makes equal rankings 1")
def without_the_root(a, b):
    x, y = _order(a).triu(), _order(b).triu()  # each pair once
    return (x * y).sum() / (x.abs().sum() * y.abs().sum())


@tau.mistake(
    "divided by the pairs that agree or disagree (that is Goodman and Kruskal's γ); here pairs "
    "that tie in one of the two count in the other: √(n_a · n_b)"
)
def ties_left_out(a, b):
    both = _order(a) * _order(b)
    return both.sum() / both.abs().sum()


@tau.mistake("the diagonal is counted: a pair of an entry with itself is no pair; n(n - 1), not n²")
def diagonal_counted(a, b):
    return (_order(a) * _order(b)).mean()


@tau.mistake("that is Pearson's correlation of the numbers; τ looks at their order alone")
def pearson(a, b):
    return torch.corrcoef(torch.stack([a, b]))[0, 1]


@tau.mistake("that is Spearman's correlation, of ranks; τ counts pairs that agree and disagree")
def spearman(a, b):
    return pearson(a.argsort().argsort().to(a.dtype), b.argsort().argsort().to(b.dtype))


@tau.mistake("that is the share of pairs that agree, from 0 to 1; pairs that disagree count -1")
def share_that_agrees(a, b):
    n = len(a)
    return ((_order(a) * _order(b)) > 0).sum() / (n * (n - 1))


@tau.mistake("only neighbours in the row are compared; take all pairs")
def only_neighbours(a, b):
    da, db = a.diff().sign(), b.diff().sign()
    return (da * db).sum() / (da.norm() * db.norm())


@tau.mistake("half as large as it should be: the sum counts each pair once, the divisor twice")
def pairs_counted_once(a, b):
    return kendall_tau(a, b) / 2


@tau.mistake("twice too large: the sum over all (i, j) counts each pair twice, the divisor once")
def pairs_counted_twice(a, b):
    return kendall_tau(a, b) * 2


@tau.mistake("differences are multiplied as they are: only their signs count, +1, −1 or 0")
def signs_not_taken(a, b):
    moved = (a[:, None] - a) * (b[:, None] - b)
    return moved.sum() / (_order(a).square().sum() * _order(b).square().sum()).sqrt()


@tau.mistake(
    "right without ties; `(a_i > a_j) == (b_i > b_j)` takes a tie for an order, and it must add 0"
)
def ties_that_agree(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    agree = 2 * ((a[i] > a[j]) == (b[i] > b[j])).double() - 1
    return agree.sum() / (_order(a).triu().abs().sum() * _order(b).triu().abs().sum()).sqrt()


# 8.3 js_divergence


def js_divergence(p, q):
    m = (p + q) / 2
    return (_kl(p, m) + _kl(q, m)) / 2


def _kl(p, m):
    return (torch.xlogy(p, p) - torch.xlogy(p, m)).sum(dim=-1)


def _pairs_of_distributions():
    rng = torch.Generator().manual_seed(83)
    zeros = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.2, 0.3, 0.5]])
    return [
        (_weights(rng, 5), _weights(rng, 5)),
        (_weights(rng, 2, 3, 7), _weights(rng, 2, 3, 7)),
        (_weights(rng, 3, 4), _weights(rng, 3, 4)),
        (zeros[0], zeros[1]),
        (torch.eye(3)[:2], torch.eye(3)[1:]),  # no key shared
    ]


divergence = Exercise("8.3", js_divergence, _pairs_of_distributions)


@divergence.mistake("that is KL(p ‖ q), which is not symmetric, and infinite where q alone is 0")
def kl_alone(p, q):
    return _kl(p, q)


@divergence.mistake(
    "p and q are compared with each other; compare each with their mean m, which is 0 only where "
    "both are"
)
def symmetric_kl(p, q):
    return (_kl(p, q) + _kl(q, p)) / 2


@divergence.mistake("KL(p ‖ m) and KL(q ‖ m) are added; take their mean")
def not_halved(p, q):
    return 2 * js_divergence(p, q)


@divergence.mistake("only KL(p ‖ m); the half of q is missing")
def half_of_it(p, q):
    return _kl(p, (p + q) / 2)


@divergence.mistake(
    "those are KL(m ‖ p) and KL(m ‖ q), infinite where p or q is 0; m belongs second (F.kl_div, "
    "though, takes it first, as a logarithm)"
)
def reversed_kl(p, q):
    m = (p + q) / 2
    return (_kl(m, p) + _kl(m, q)) / 2


@divergence.mistake("m is the sum there and not the mean: (p + q) / 2")
def mean_not_halved(p, q):
    return (_kl(p, p + q) + _kl(q, p + q)) / 2


@divergence.mistake("H(m) less the *mean* of H(p) and H(q): halve their sum")
def entropies_not_halved(p, q):
    h_m, h_p, h_q = (torch.special.entr(w).sum(dim=-1) for w in ((p + q) / 2, p, q))
    return h_m - h_p - h_q


@divergence.mistake("that is in bits; take the natural logarithm")
def in_bits(p, q):
    return js_divergence(p, q) / torch.log(torch.tensor(2.0))


@divergence.mistake("that is its square root, the Jensen–Shannon distance")
def distance_not_divergence(p, q):
    return js_divergence(p, q).clamp(min=0).sqrt()


@divergence.mistake("a weight of 0 gives 0 · ln 0 = NaN; it must add 0: torch.xlogy, or where")
def zeros_are_nan(p, q):
    m = (p + q) / 2
    return ((p * (p / m).log()).sum(dim=-1) + (q * (q / m).log()).sum(dim=-1)) / 2


@divergence.mistake("the keys are averaged; Σ over the last dimension")
def mean_over_keys(p, q):
    return js_divergence(p, q) / p.shape[-1]


@divergence.mistake("all rows are added up to one number; one for each distribution")
def one_number_for_all(p, q):
    return js_divergence(p, q).sum()


# 8.4 rollout


def rollout(weights):
    rolled = torch.eye(weights.shape[-1], dtype=weights.dtype)
    for layer in weights.mean(dim=1):
        rolled = (layer + torch.eye(len(layer), dtype=layer.dtype)) / 2 @ rolled
    return rolled


def _stacks():
    rng = torch.Generator().manual_seed(84)
    return [
        (_weights(rng, 3, 2, 5, 5),),
        (_weights(rng, 2, 4, 6, 6),),
        (_weights(rng, 1, 3, 4, 4),),
        (_weights(rng, 4, 5, 3, 3),),
    ]


rolled = Exercise("8.4", rollout, _stacks, names="L L")


def _product(layers):
    """Multiply matrices (layers, L, L), the later from the left."""
    product = torch.eye(layers.shape[-1], dtype=layers.dtype)
    for layer in layers:
        product = layer @ product
    return product


def _with_residual(layers):
    return (layers + torch.eye(layers.shape[-1], dtype=layers.dtype)) / 2


@rolled.mistake(
    "the layers are multiplied in the wrong order: the first layer acts first, so the later stands "
    "to the left"
)
def first_layer_left(weights):
    return _product(_with_residual(weights.mean(dim=1)).flip(0))


@rolled.mistake("the residual connection is missing: half of each layer is the identity")
def no_residual(weights):
    return _product(weights.mean(dim=1))


@rolled.mistake("weights plus identity, not halved: rows sum to more than 1")
def residual_not_halved(weights):
    return _product(2 * _with_residual(weights.mean(dim=1)))


@rolled.mistake("only the weights are halved: half of the identity, so that rows sum to 1")
def weights_halved_alone(weights):
    return _product(_with_residual(weights.mean(dim=1)) + torch.eye(weights.shape[-1]) / 2)


@rolled.mistake("only the identity is halved: half of the weights, so that rows sum to 1")
def identity_halved_alone(weights):
    layers = weights.mean(dim=1)
    return _product(_with_residual(layers) + layers / 2)


@rolled.mistake("averaged over dimension 0, the layers; the heads are dimension 1")
def heads_for_layers(weights):
    return rollout(weights.transpose(0, 1))


@rolled.mistake(
    "each head is followed through the layers by itself; average the heads of a layer first"
)
def heads_averaged_last(weights):
    return torch.stack([rollout(head[:, None]) for head in weights.unbind(dim=1)]).mean(dim=0)


@rolled.mistake("the identity is added once, and not in every layer")
def one_residual(weights):
    return _with_residual(_product(weights.mean(dim=1)))


@rolled.mistake("heads are added; take their mean")
def heads_summed(weights):
    return _product(_with_residual(weights.sum(dim=1)))


@rolled.mistake("the largest of the heads is taken; take their mean")
def strongest_head(weights):
    return _product(_with_residual(weights.amax(dim=1)))


@rolled.mistake("only the last layer: multiply all of them")
def last_layer_only(weights):
    return _with_residual(weights.mean(dim=1))[-1]


@rolled.mistake("layers are averaged; what passes one after the other is multiplied")
def layers_averaged(weights):
    return _with_residual(weights.mean(dim=1)).mean(dim=0)


@rolled.mistake("multiplied entry by entry; use the matrix product @")
def entry_by_entry(weights):
    return _with_residual(weights.mean(dim=1)).prod(dim=0)


@rolled.mistake("it is transposed: rows are outputs, columns inputs, and rows sum to 1")
def rollout_transposed(weights):
    return rollout(weights).T


# 8.5 value_weighted


def value_weighted(weights, v):
    return weights * v.norm(dim=-1)[..., None, :]


def _weights_and_values():
    rng = torch.Generator().manual_seed(85)

    def values(*shape):
        return 3 * torch.randn(*shape, generator=rng)

    square = _weights(rng, 4, 4), values(4, 4)  # where a norm along the wrong dimension fits
    return [
        (_weights(rng, 5, 7), values(7, 3)),
        square,
        (_weights(rng, 2, 3, 4, 6), values(2, 3, 6, 5)),
        (_weights(rng, 3, 5), values(5, 2)),
    ]


weighted = Exercise("8.5", value_weighted, _weights_and_values, names="L S")


@weighted.mistake("the lengths are squared: that is the sum of squares; its root is the length")
def length_squared(weights, v):
    return weights * v.square().sum(dim=-1)[..., None, :]


@weighted.mistake("the sizes of the entries are added; the length is the root of the squares' sum")
def sizes_added(weights, v):
    return weights * v.abs().sum(dim=-1)[..., None, :]


@weighted.mistake("the entries of each value are added with their signs; take the vector's length")
def entries_added(weights, v):
    return weights * v.sum(dim=-1)[..., None, :]


@weighted.mistake("rows are divided by their sums again; the lengths themselves are asked")
def normalised_again(weights, v):
    lengths = value_weighted(weights, v)
    return lengths / lengths.sum(dim=-1, keepdim=True)


@weighted.mistake("values belong to keys: their lengths go along the columns, (..., 1, S)")
def lengths_along_queries(weights, v):
    return weights * v.norm(dim=-1)[..., :, None]


@weighted.mistake("the length is taken over the keys; each value's length is over d_v")
def length_over_keys(weights, v):
    return weights * v.norm(dim=-2)[..., None, :]


@weighted.mistake("that is the length of the whole output; one length for each key is asked")
def length_of_the_mixture(weights, v):
    return (weights @ v).norm(dim=-1)


@weighted.mistake("those are the vectors, (..., L, S, d_v); take their lengths")
def vectors_not_lengths(weights, v):
    return weights[..., None] * v[..., None, :, :]


@weighted.mistake("the lengths of the values alone; multiply by the weights")
def values_alone(weights, v):
    return v.norm(dim=-1)[..., None, :].expand(weights.shape)


# 8.6 cherry_picked


def cherry_picked(weights, query, key):
    told = weights[:, :, query, key]
    return torch.tensor(divmod(int(told.argmax()), told.shape[1]))


def _heads_and_pairs():
    rng = torch.Generator().manual_seed(86)
    stacks = [_weights(rng, 3, 5, 4, 6), _weights(rng, 6, 2, 7, 7), _weights(rng, 4, 4, 5, 5)]
    pairs = [(1, 3), (0, 2), (3, 0)]
    return [(stack, *pair) for stack in stacks for pair in pairs]


picked = Exercise("8.6", cherry_picked, _heads_and_pairs, names="2")


@picked.mistake("first the head, then the layer: turn them round")
def head_before_layer(weights, query, key):
    return cherry_picked(weights, query, key).flip(0)


@picked.mistake(
    "that is the place in the flattened matrix; divide it by the number of heads: quotient and rest"
)
def flat_place(weights, query, key):
    return weights[:, :, query, key].argmax()


@picked.mistake(
    "the flat place is divided by the number of layers; a row holds as many entries as heads"
)
def divided_by_layers(weights, query, key):
    return torch.tensor(divmod(int(weights[:, :, query, key].argmax()), len(weights)))


@picked.mistake("query and key are exchanged: rows are queries, weights[..., query, key]")
def query_and_key_exchanged(weights, query, key):
    return cherry_picked(weights.transpose(-2, -1), query, key)


@picked.mistake("that is the head with the largest weight anywhere; look at the one pair")
def largest_anywhere(weights, query, key):
    return cherry_picked(weights.amax(dim=(-2, -1), keepdim=True), 0, 0)


@picked.mistake("layer and head are counted from 0, as in code; these are from 1")
def picked_from_one(weights, query, key):
    return cherry_picked(weights, query, key) + 1


@picked.mistake("that is where the weight is smallest; the story wants the largest")
def smallest_weight(weights, query, key):
    return cherry_picked(-weights, query, key)


@picked.mistake(
    "layer and head are looked for one by one, in averages; the largest single entry may be "
    "elsewhere"
)
def averages_first(weights, query, key):
    told = weights[:, :, query, key]
    return torch.stack([told.mean(dim=1).argmax(), told.mean(dim=0).argmax()])


# 8.7 share_of_stories


def share_of_stories(weights, shown):
    return (weights.amax(dim=(0, 1)) >= shown).double().mean()


def _stacks_and_thresholds():
    rng = torch.Generator().manual_seed(87)
    few, many = _weights(rng, 2, 3, 5, 7), _weights(rng, 4, 3, 6, 4)
    even = torch.full((2, 2, 3, 4), 0.25)
    own = float(few[1, 2].max())  # itself counts
    causal = few[..., :5].tril()
    causal = causal / causal.sum(dim=-1, keepdim=True)
    return [
        (few, 0.3),
        (causal, 0.5),
        (many, 0.6),
        (few, own),
        (many, 0.95),
        (even, 0.25),
        (few, 0.0),
    ]


stories = Exercise("8.7", share_of_stories, _stacks_and_thresholds)


@stories.mistake("that is the share of single weights; a pair counts once, if *some* head shows it")
def share_of_weights(weights, shown):
    return (weights >= shown).double().mean()


@stories.mistake("a pair counts if some head shows it; here all heads must")
def all_heads_must(weights, shown):
    return (weights.amin(dim=(0, 1)) >= shown).double().mean()


@stories.mistake("the heads are averaged before; one picture is of one head: take the largest")
def heads_averaged(weights, shown):
    return (weights.mean(dim=(0, 1)) >= shown).double().mean()


@stories.mistake("that is how many pairs; divide by the number of pairs")
def number_of_pairs(weights, shown):
    return (weights.amax(dim=(0, 1)) >= shown).sum().item()


@stories.mistake("at least as large: >=, so that the picture shown counts itself")
def strictly_larger(weights, shown):
    return (weights.amax(dim=(0, 1)) > shown).double().mean()


@stories.mistake("that is the share of heads that show some pair; the share of pairs is asked")
def share_of_heads(weights, shown):
    return (weights.amax(dim=(-2, -1)) >= shown).double().mean()


@stories.mistake("that is the share of pairs that no head shows")
def share_without(weights, shown):
    return 1 - share_of_stories(weights, shown)


@stories.mistake(
    "pairs that no head gives any weight, as masked ones, are left out; *all* pairs count"
)
def masked_pairs_left_out(weights, shown):
    best = weights.amax(dim=(0, 1))
    return (best[best > 0] >= shown).double().mean()


@stories.mistake("only queries are counted, by their largest weight; count pairs")
def share_of_queries(weights, shown):
    return (weights.amax(dim=(0, 1, 3)) >= shown).double().mean()
