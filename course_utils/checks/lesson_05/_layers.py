"""What the checks of lesson 05 share: inputs for layers, and whether a layer is changed."""

import itertools

import torch
from torch import nn

from course_utils.checks import shared_hints
from course_utils.checks.compare import difference, is_same
from course_utils.checks.exercise import NO_FIT, NamedMistake, one_layout, tag_learner_errors
from course_utils.checks.inputs import normals
from course_utils.checks.submission_layer import layer_outputs


def draw(layer, rng=None):
    """Draw new random parameters, biases too, because they may be 0 in a new layer."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5, generator=rng)


def state(layer):
    """Return the values of all parameters, and which of them require gradients."""
    return {
        name: (each.detach().clone().double(), each.requires_grad)
        for name, each in layer.named_parameters()
    }


def see_that_biases_count(outputs, layer, right, matrices, *inputs):
    """Raise NamedMistake if a layer is wrong only once its biases are not 0.

    In ``outputs`` all biases were 0. The layer is compared with a right one that has the same
    parameters, on inputs where a query has no allowed key.
    """
    *tokens, mask = inputs
    shapes = [{n: p.shape for n, p in each.named_parameters()} for each in (layer, right)]
    if mask is None or mask.any(-1).all() or tokens[0].requires_grad or shapes[0] != shapes[1]:
        return
    with one_layout(0):
        [target] = layer_outputs(right, matrices, *inputs)
    if not any(is_same(each, target) for each in outputs if each is not NO_FIT):
        return  # wrong already; to try all orders would take long
    draw(layer, torch.Generator().manual_seed(5))
    with torch.no_grad():
        result = tag_learner_errors(layer)(*inputs)
        for rows in orders_of_rows(right):
            for name, each in right.named_parameters():
                same = layer.get_parameter(name)
                each.copy_(same[rows] if "qkv" in name else same)
            if not difference(result, right(*inputs)):
                return
    raise NamedMistake("biases", BIASES, outputs)


def orders_of_rows(layer):
    """Yield the orders in which a fused layer may hold the rows of (q, k, v), each (H, d_k)."""
    H, d_model = layer.num_heads, layer.W_o.in_features
    sizes = 3, H, d_model // H
    if not hasattr(layer, "W_qkv"):
        yield ...
        return
    for axes in itertools.permutations(range(3)):
        rows = torch.arange(3 * d_model).view([sizes[axis] for axis in axes])
        rows = rows.permute([axes.index(axis) for axis in range(3)])  # (3, H, d_k)
        for order in itertools.permutations(range(3)):
            yield rows[[*order]].flatten()


BIASES = (
    "Your result is right as long as all biases are 0, but not with other biases. If you leave a "
    "bias out, call the whole layer, as in `self.W_q(x)`. If a query has no allowed key, its "
    "output must still contain the bias of W_o, so set its weights to 0, not its output."
)


def is_changed(layer, before):
    """Tell whether a layer's `state` has changed."""
    now = state(layer)
    return now.keys() != before.keys() or any(
        learns != before[name][1] or not numbers.equal(before[name][0])
        for name, (numbers, learns) in now.items()
    )


class TorchInside(nn.Module):
    """PyTorch's layer with its defaults; for self-attention, it gets one x and a mask."""

    batch_first = True

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.layer = nn.MultiheadAttention(d_model, num_heads, batch_first=self.batch_first)

    def forward(self, query, *others):
        *key_and_value, mask = others
        key, value = key_and_value or (query, query)
        return self.layer(query, key, value, attn_mask=mask)


def loud(d_model, num_heads, matrices, *inputs):
    """Return a probe of whole numbers, which float32 holds exactly, with scores in the millions."""

    def whole(x):
        if isinstance(x, tuple):
            return tuple(map(whole, x))
        return (4 * x).round() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    matrices = {name: whole(each) for name, each in matrices.items()}
    matrices["W_q"] *= 4096
    return d_model, num_heads, matrices, *map(whole, inputs)


def arranged(tokens, in_order=False):
    """Return tokens (n, B, d_model) as (B, n, d_model), in order in memory or not.

    With a batch of one, they are only out of order if the columns are, too.
    """
    if in_order:
        return tokens.transpose(0, 1).contiguous()
    columns = tokens.permute(2, 0, 1).contiguous()  # (d_model, n, B)
    return columns.permute(2, 1, 0) if tokens.shape[1] == 1 else tokens.transpose(0, 1)


def layers_and_inputs():
    """Return (d_model, num_heads, matrices, inputs of an earlier call, inputs).

    No head has width 3, the number of q, k and v, or width num_heads.
    """
    normal = normals(53)
    rng = torch.Generator().manual_seed(54)

    def probe(B, L, S, H, d_k, *mask, earlier=False, in_order=False):
        d_model = H * d_k
        names = "W_q", "W_k", "W_v", "W_o"
        matrices = {name: normal(H, d_k, d_model).float() / d_model**0.5 for name in names}
        tokens = [normal(n, B, d_model).float() for n in (L, S, S)]
        tokens = [arranged(each, in_order) for each in tokens]
        allowed = torch.rand(mask, generator=rng) < 0.5 if mask else None
        if mask:
            allowed[..., mask[-1] // 2] = True
        before = [normal(B, n, d_model).float() for n in (L + 2, S + 1, S + 1)] if earlier else []
        before += [torch.zeros(1, 1, dtype=torch.bool)] if earlier else []  # nothing allowed
        return d_model, H, matrices, before, (*tokens, allowed)

    *layer, (*tokens, _) = probe(2, 4, 4, 3, 2)
    nothing_for_the_first = *layer, (*tokens, torch.ones(4, 4).tril(-1) > 0)
    for_each_head = probe(2, 4, 5, 3, 4, 2, 3, 4, 5)
    for_each_head[-1][-1][0, 0, 1] = False  # one query has no allowed key in one head
    return [
        probe(2, 4, 5, 3, 2),
        loud(*probe(2, 4, 5, 2, 4, 2, 1, 1, 5)),
        probe(3, 5, 4, 2, 4, in_order=True),
        probe(2, 3, 6, 4, 2, earlier=True),
        probe(2, 4, 6, 3, 2, 4, 6),  # one mask for all
        probe(3, 5, 5, 2, 4, 3, 1, 1, 5),  # one for each sequence, as for padding
        for_each_head,
        probe(2, 1, 5, 2, 4, 1, 2, 1, 5),  # a single query
        probe(3, 4, 6, 3, 2, 3, 4, 6),  # one for each head, the same for all sequences
        probe(2, 3, 4, 2, 5, 1, 4),  # one for all queries
        nothing_for_the_first,
        probe(1, 1, 1, 2, 4),
        probe(2, 3, 4, 1, 6),
        probe(1, 9, 10, 9, 2, 9, 10),
        probe(2, 4, 5, 3, 2, 4, 5, in_order=True),
        probe(2, 5, 5, 2, 4),  # as many queries as keys, but no mask
    ]


TAKEN_FOR_WIDTH = (
    "Your heads are num_heads columns wide. But num_heads is the number of heads. Make each head "
    "d_model / num_heads columns wide."
)
TURNS = (
    "Your head h gets every H-th column, starting with column h. Give it the consecutive columns h "
    "· d_k to (h + 1) · d_k − 1."
)
RESHAPED_AT_ONCE = (
    "You get this result if you reshape to (B, H, L, d_k) in one step, which mixes tokens. Reshape "
    "to (B, L, H, d_k), then swap L and H."
)
RESHAPED_ACROSS_BATCH = (
    "You get this result if you reshape to (L, B, H, d_k), which mixes sequences. Reshape to (B, "
    "L, H, d_k), then swap L and H."
)
BETWEEN_HEADS = (
    "You get this result, or an error, if tokens come before heads, as in (B, L, H, d_k). Then the "
    "heads of each token attend to each other. Swap L and H before you compute the scores, and "
    "swap them back before you merge."
)
RESHAPED_ALONE = (
    "You get this result if you split and merge the heads by reshaping alone. Then each head gets "
    "pieces of several tokens. To split, reshape to (B, L, H, d_k), then swap L and H. To merge, "
    "swap them back before you reshape."
)
MASK_OF_HEAD_0 = (
    "Right, unless the mask differs between heads. You use the mask of head 0 for all heads. Give "
    "each head its own mask."
)
MASK_OF_SEQUENCE_0 = (
    "Right, unless the mask differs between sequences. You use the mask of the first sequence for "
    "all sequences. Give each sequence its own mask."
)
MASKED_LATE = (
    "Right without a mask. With a mask, you get this result if you set weights to 0 after softmax. "
    "Then forbidden keys still count in the denominator of softmax, and a query's weights no "
    "longer sum to 1. Fill forbidden scores with −inf before softmax, and replace NaN with 0 where "
    "no key is allowed."
)
DEALT_TWICE = (
    "You get this result if head h takes every H-th column, both in the split and in the merge. "
    "Let head h take the consecutive columns h · d_k to (h + 1) · d_k − 1, both times."
)
HALF = (
    "Your numbers are right to only two or three digits, as if computed in 16-bit floats. Compute "
    "in the dtype of the inputs."
)
NOTHING_SUBTRACTED = (
    "Right, except when scores are in the hundreds, positive or negative. You get this result if "
    "you compute softmax without subtracting the maximum. Then e^score overflows to inf or "
    "underflows to 0, and the weights become NaN or 0. Fill forbidden scores with −inf, use "
    "softmax, and replace NaN with 0 where a query has no allowed key."
)

# Rows for 5.3 and 5.11, whose right answers share these lines
OF_ANY_LAYER = [
    ("heads taken for width", TAKEN_FOR_WIDTH,
     ("(self.num_heads, -1)", "(-1, self.num_heads)")),
    ("divided by d_k", shared_hints.DIVIDED_BY_D_K, ("d_k**0.5", "d_k")),
    ("not divided", shared_hints.NOT_SCALED, (" / d_k**0.5", "")),
    ("softmax over the queries", shared_hints.OVER_QUERIES, ("softmax(dim=-1)", "softmax(dim=-2)")),
    ("mask not used", shared_hints.MASK_NOT_USED, ("mask is not None", "False")),
    ("mask inverted", shared_hints.MASK_INVERTED, ("~mask", "mask")),
    ("masked with 0",
     "Right without a mask. With a mask, you get this result if forbidden scores become 0. Since "
     "e^0 is 1, forbidden keys still get a weight. Fill forbidden scores with −inf.",
     ("-torch.inf", "0")),
    ("filled with too little",
     "Right, except where all allowed scores are far below your fill value for forbidden scores. "
     "There, the allowed weights underflow to 0. Fill with −inf instead. A query with no allowed "
     "key then gets NaN weights, so replace NaN with 0.",
     ("-torch.inf", "-1e4"), (".nan_to_num(0)", " * (1 if mask is None else mask)")),
    ("joined without transpose",
     "Each row of your merged heads mixes parts of several tokens. Transpose back to (B, L, H, "
     "d_k) before you reshape.",
     ("heads.transpose(1, 2).flatten(2)", "heads.reshape(len(heads), heads.shape[2], -1)")),
    ("merged column by column",
     "Your merged rows take one column of each head in turn. The columns of each head must stay "
     "together. Transpose to (B, L, H, d_k), then flatten the last two dimensions.",
     ("heads.transpose(1, 2).flatten(2)", "heads.permute(0, 2, 3, 1).flatten(2)")),
    ("merged heads not projected",
     "Your output is the merged heads. Project them with W_o.",
     ("self.W_o(merged)", "merged")),
    ("keys of the first sequence",
     "Right, unless there are several sequences. All your queries attend to the keys and values "
     "of the first sequence. Let each sequence attend to its own.",
     ("d_k = q.shape[-1]", "d_k, k, v = q.shape[-1], k[:1], v[:1]")),
    ("mask added to the scores",
     "Your mask forbids nothing. If you add it to the scores, True adds 1 and False adds 0. Fill "
     "scores with −inf where the mask is False, and set the weights of a query with no allowed "
     "key to 0.",
     ("scores.masked_fill(~mask, -torch.inf)", "scores + mask")),
    ("too little added",
     "Right, unless a forbidden score is far above the others. Then the forbidden key gets weight, "
     "as if only a finite number, such as 1e4, were subtracted from its score. Fill forbidden "
     "scores with −inf, and set the weights of a query with no allowed key to 0.",
     ("scores.masked_fill(~mask, -torch.inf)", "scores + ~mask * -1e4"),
     (".nan_to_num(0)", " * (1 if mask is None else mask.any(-1, keepdim=True))")),
    ("too little added, empty rows open",
     "Right, with two exceptions. Where a forbidden score is far above the others, the forbidden "
     "key gets weight. And a query with no allowed key attends as if there were no mask. This "
     "happens if you subtract a finite number, such as 1e4, from forbidden scores. Fill them with "
     "−inf, and set the weights of a query with no allowed key to 0.",
     ("scores.masked_fill(~mask, -torch.inf)", "scores + ~mask * -1e4"), (".nan_to_num(0)", "")),
    ("nothing subtracted, masked after exp", NOTHING_SUBTRACTED,
     ("scores = scores.masked_fill(~mask, -torch.inf)", "pass"),
     ("weights = scores.softmax(dim=-1).nan_to_num(0)",
      "e = scores.exp() * (1 if mask is None else mask)\n        total = e.sum(-1, keepdim=True)\n"
      "        weights = e / torch.where(total == 0, 1.0, total)")),
    ("nothing subtracted, NaN made 0", NOTHING_SUBTRACTED,
     ("scores.softmax(dim=-1)", "(scores.exp() / scores.exp().sum(-1, keepdim=True))")),
    ("nothing subtracted, empty rows are NaN",
     "Right for scores around 0, if every query has an allowed key. You get this result if you "
     "compute softmax without subtracting the maximum. For scores in the hundreds, positive or "
     "negative, e^score overflows to inf or underflows to 0. With no allowed key, every e^score is "
     "0. Then inf / inf or 0 / 0 gives NaN. Fill forbidden scores with −inf, use softmax, and "
     "replace NaN with 0.",
     ("-torch.inf", "torch.finfo(scores.dtype).min"), ("scores.softmax(dim=-1).nan_to_num(0)",
      "scores.exp() / scores.exp().sum(-1, keepdim=True) * (1 if mask is None else mask)")),
    ("weights averaged",
     "The output is right, but your weights are the mean over the heads. Return the weights of "
     "each head, with the shape (B, H, ...).",
     ("(merged), weights", "(merged), weights.mean(dim=1)")),
    ("scores returned", shared_hints.SCORES_FOR_WEIGHTS,
     ("(merged), weights", "(merged), scores")),
    ("weights first",
     "Output and weights are in the wrong order. Return the output first.",
     ("self.W_o(merged), weights", "weights, self.W_o(merged)")),
    ("output without weights",
     "Your layer returns only the output. Return two results: the output and the weights of each "
     "head.",
     ("(merged), weights", "(merged)")),
    ("causal without a mask",
     "Right with a mask. Without a mask, every query may attend to all keys, but your result is "
     "causal. Forbid only what a mask forbids.",
     ("        if mask is not None:", "        if mask is None:\n            mask = torch.ones("
      "scores.shape[-2:]).tril() > 0\n        if mask is not None:")),
    ("always causal",
     "In your result, no query attends to a key after its own position. That is right only with a "
     "causal mask. Forbid only what the mask forbids.",
     (".softmax",
      ".masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf).softmax")),
    ("nan for an empty row",
     "Right, except for a query with no allowed key. All its scores are −inf, and softmax over "
     "−inf alone is NaN. Replace NaN with 0 in the weights before you multiply them by the values.",
     (".nan_to_num(0)", "")),
    ("mask ignored for an empty row",
     "Right, except for a query with no allowed key. It attends as if there were no mask. Set the "
     "weights of such a query to 0.",
     ("~mask", "~(mask | ~mask.any(dim=-1, keepdim=True))")),
    ("square mask transposed",
     "Right, except for a mask with as many rows as columns, which you transpose. Rows are queries "
     "and columns are keys, so use the mask as it is.",
     ("~mask", "~(mask.mT if mask.shape[-1] == mask.shape[-2] else mask)")),
    ("mask transposed",
     "You get this result, or an error, if you transpose the mask. Its last two dimensions are "
     "already queries and keys, in this order. Use the mask as it is.",
     ("~mask", "~mask.mT")),
    ("queries and keys in half precision", HALF,
     ("scores = q", "q, k, v = (x.half().to(x.dtype) for x in (q, k, v))\n        scores = q")),
    *(
        (f"attention in {dtype}", HALF,
         ("heads = weights @ v", "heads, weights = (x.to(q.dtype) for x in lessons(*(x.to(torch."
          f"{dtype}) for x in (q, k, v)), mask))"))
        for dtype in ("float16", "bfloat16")
    ),
    ("everything for an empty row",
     "Right, except for a query with no allowed key. It attends to all keys equally, as happens "
     "if you fill forbidden scores with a finite number such as `-1e9`. Set the weights of such a "
     "query to 0.",
     ("-torch.inf", "-1e9")),
    ("weights masked late and renormalized",
     "Right, except where a forbidden score is far above the allowed ones. You get this result if "
     "you mask the weights after softmax and divide them by their sum. By then, the allowed "
     "weights are almost 0 or have underflowed to 0. Fill forbidden scores with −inf before "
     "softmax, and replace NaN with 0 where no key is allowed.",
     ("scores = scores.masked_fill(~mask, -torch.inf)", "pass"),
     (".nan_to_num(0)", " * (1 if mask is None else mask)\n"
      "        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)")),
    ("divided by root of the number of keys",
     "Your scores are divided by the square root of the number of keys. Each score is a sum of "
     "d_k products, so divide by √d_k.", ("d_k**0.5", "k.shape[-2]**0.5")),
    ("mask for all queries ignored",
     "Right, except for a mask that has size 1 in the dimension of the queries, such as a padding "
     "mask. You ignore such a mask. Apply it too: it broadcasts over the queries.",
     ("if mask is not None", "if mask is not None and mask.shape[-2] == q.shape[-2]")),
    ("padding taken for queries",
     "Right, except for a padding mask when there are as many queries as keys. Then you mask "
     "queries instead of keys. Use the mask as it is, without a transpose.",
     ("~mask", "~(mask.mT if mask.shape[-2] == 1 and q.shape == k.shape else mask)")),
    ("output lost where head 0 is empty",
     "Your whole output is 0 for a query that has no allowed key in one of the heads, even if it "
     "has some in others. Set only the weights of that head to 0, not the output.",
     ("self.W_o(merged), weights", "self.W_o(merged) * (weights.sum(-1)[:, :1].mT > 0), weights")),
    ("PyTorch's layer as it is",
     "Your result is what nn.MultiheadAttention returns by default. That layer averages the "
     "weights over the heads, takes True in attn_mask to mean 'may not attend', and returns NaN "
     "for a query with no allowed key. Compute the attention of each head yourself instead.",
     TorchInside),
]  # fmt: skip
