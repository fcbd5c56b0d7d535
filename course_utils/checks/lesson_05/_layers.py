"""Lesson 05's shared pieces: what layers are tried on, and whether they stay as they are."""

import torch
from torch import nn

from course_utils.checks import shared_hints
from course_utils.checks.compare import difference
from course_utils.checks.exercise import NamedMistake, tag_learner_errors
from course_utils.checks.inputs import normals


def draw(layer, rng=None):
    """Draw all parameters anew, biases too, which may be 0 in a new layer."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5, generator=rng)


def state(layer):
    """Return the numbers of all parameters, and which of them learn."""
    return {
        name: (each.detach().clone().double(), each.requires_grad)
        for name, each in layer.named_parameters()
    }


def see_that_biases_count(outputs, layer, right, *inputs):
    """Complain if a layer is wrong only where biases are not 0, as they are in ``outputs``.

    It is compared with a right one laid out alike, where a mask leaves a query nothing to see.
    """
    *tokens, mask = inputs
    shapes = [{n: p.shape for n, p in each.named_parameters()} for each in (layer, right)]
    if mask is None or mask.any(-1).all() or tokens[0].requires_grad or shapes[0] != shapes[1]:
        return
    draw(layer, torch.Generator().manual_seed(5))
    right.load_state_dict(layer.state_dict())
    with torch.no_grad():
        if difference(tag_learner_errors(layer)(*inputs), right(*inputs)):
            raise NamedMistake("biases", BIASES, outputs)


BIASES = (
    "Your result is right while all biases are 0, and wrong once they are not. A bias may be left "
    "out, or an output set to 0 where W_o's bias should remain. Call the layers, as in "
    "self.W_q(x), and set weights to 0, not outputs."
)


def is_changed(layer, before):
    """Tell whether a layer's `state` is another than it was."""
    now = state(layer)
    return now.keys() != before.keys() or any(
        learns != before[name][1] or not numbers.equal(before[name][0])
        for name, (numbers, learns) in now.items()
    )


class TorchInside(nn.Module):
    """PyTorch's layer as it is, for self-attention too, which gives it one x and a mask."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.layer = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, query, *others):
        *key_and_value, mask = others
        key, value = key_and_value or (query, query)
        return self.layer(query, key, value, attn_mask=mask)


def loud(d_model, num_heads, matrices, *inputs):
    """Return a probe with whole numbers, exact in float32, and scores in the millions."""

    def whole(x):
        if isinstance(x, tuple):
            return tuple(map(whole, x))
        return (4 * x).round() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    matrices = {name: whole(each) for name, each in matrices.items()}
    matrices["W_q"] *= 4096
    return d_model, num_heads, matrices, *map(whole, inputs)


def layers_and_inputs():
    """Return (d_model, num_heads, matrices, an earlier call's inputs, inputs).

    No head is 3 wide, as there are 3 of q, k, v, nor as wide as there are heads.
    """
    normal = normals(53)
    rng = torch.Generator().manual_seed(54)

    def probe(B, L, S, H, d_k, *mask, earlier=False):
        d_model = H * d_k
        names = "W_q", "W_k", "W_v", "W_o"
        matrices = {name: normal(H, d_k, d_model).float() / d_model**0.5 for name in names}
        tokens = [normal(n, B, d_model).float().transpose(0, 1) for n in (L, S, S)]
        allowed = torch.rand(mask, generator=rng) < 0.5 if mask else None
        if mask:
            allowed[..., mask[-1] // 2] = True
        before = [normal(B, n, d_model).float() for n in (L + 2, S + 1, S + 1)] if earlier else []
        before += [torch.zeros(1, 1, dtype=torch.bool)] if earlier else []  # nothing allowed
        return d_model, H, matrices, before, (*tokens, allowed)

    *layer, (*tokens, _) = probe(2, 4, 4, 3, 2)
    nothing_for_the_first = *layer, (*tokens, torch.ones(4, 4).tril(-1) > 0)
    for_each_head = probe(2, 4, 5, 3, 4, 2, 3, 4, 5)
    for_each_head[-1][-1][0, 0, 1] = False  # one query sees nothing, in one head alone
    return [
        probe(2, 4, 5, 3, 2),
        loud(*probe(2, 4, 5, 2, 4, 2, 1, 1, 5)),
        probe(3, 5, 4, 2, 4),
        probe(2, 3, 6, 4, 2, earlier=True),
        probe(2, 4, 6, 3, 2, 4, 6),  # a mask for all
        probe(3, 4, 5, 2, 4, 3, 1, 1, 5),  # one for each sequence, as of padding
        for_each_head,
        probe(2, 1, 5, 2, 4, 1, 2, 1, 5),  # a single query
        probe(3, 4, 6, 3, 2, 3, 4, 6),  # one for each head, and the same for all sequences
        probe(2, 3, 4, 2, 5, 1, 4),  # one for all queries
        nothing_for_the_first,
        probe(1, 1, 1, 2, 4),
        probe(2, 3, 4, 1, 6),
        probe(1, 9, 10, 9, 2, 9, 10),
    ]


# Rows for 5.3 and 5.11, whose references share these lines
OF_ANY_LAYER = [
    ("heads taken for width", shared_hints.TAKEN_FOR_WIDTH,
     ("(self.num_heads, -1)", "(-1, self.num_heads)")),
    ("divided by d_k", shared_hints.DIVIDED_BY_D_K, ("d_k**0.5", "d_k")),
    ("not divided", shared_hints.NOT_SCALED, (" / d_k**0.5", "")),
    ("softmax over the queries", shared_hints.OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("mask not used", shared_hints.MASK_NOT_USED, ("mask is not None", "False")),
    ("mask turned around", shared_hints.MASK_INVERTED, ("~mask", "mask")),
    ("masked with 0", "right without a mask; under one, forbidden scores become 0, which leaves "
     "them a weight, for e^0 is 1: fill in −∞", ("-torch.inf", "0")),
    ("filled with too little", "Your result is right until all allowed scores are lower than what "
     "the forbidden ones are filled with: their weights are 0 then. Fill with −∞.",
     ("-torch.inf", "-1e4"), (".nan_to_num(0)", " * (1 if mask is None else mask)")),
    ("joined without transpose", "the heads are merged by reshaping alone: transpose back to (B, "
     "L, H, d_k) first, or a token's row holds several tokens",
     ("heads.transpose(1, 2).flatten(2)", "heads.reshape(len(heads), heads.shape[2], -1)")),
    ("merged column by column", "the heads are merged column by column: keep each head's columns "
     "together, so transpose L and H and no more",
     ("heads.transpose(1, 2).flatten(2)", "heads.permute(0, 2, 3, 1).flatten(2)")),
    ("merged heads not projected", "W_o is not used: project the merged heads",
     ("self.W_o(merged)", "merged")),
    ("weights averaged", "right output, but the weights are averaged over heads: return those of "
     "each head", ("(merged), weights", "(merged), weights.mean(dim=1)")),
    ("scores returned", "right output, but scores are returned with it: return the weights, what "
     "softmax gives", ("(merged), weights", "(merged), scores")),
    ("weights first", "output and weights stand in the wrong order: output first",
     ("self.W_o(merged), weights", "weights, self.W_o(merged)")),
    ("output without weights", "return two things, the output and the weights of each head",
     ("(merged), weights", "(merged)")),
    ("causal without a mask",
     "Your result is causal where no mask is given. Without a mask every query may see all keys. "
     "Mask only what mask forbids.",
     ("        if mask is not None:", "        if mask is None:\n            mask = torch.ones("
      "scores.shape[-2:]).tril() > 0\n        if mask is not None:")),
    ("always causal", "a query sees no key after its own place, which is right under a causal mask "
     "alone: what is allowed is told by mask, and without one all is", (".softmax",
      ".masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf).softmax")),
    ("nan for an empty row", "right, except where a query may see nothing, as padding at the "
     "start: NaN there; give weights of 0", (".nan_to_num(0)", "")),
    ("everything for an empty row", "right, except where a query may see nothing: a finite fill "
     "such as -1e9 attends to everything there; give weights of 0", ("-torch.inf", "-1e9")),
    ("PyTorch's layer as it is",
     "nn.MultiheadAttention averages its weights unless told average_attn_weights=False, and in "
     "its attn_mask, (L, S) or (B·H, L, S), True = may not attend", TorchInside),
]  # fmt: skip
