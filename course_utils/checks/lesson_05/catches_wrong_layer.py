"""5.10: the learner writes a test for somebody else's layer."""

import torch
from torch import nn

from course_utils.attention import attention, causal_mask
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_05 import multi_head_attention as layer_exercise
from course_utils.checks.lesson_05._layers import draw
from course_utils.checks.lesson_05.multi_head_attention import MultiHeadAttention
from course_utils.checks.source_edits import edited
from course_utils.checks.submission_test import run_against, versions


def catches_wrong_layer(MultiHeadAttention):
    d_model, H = 12, 3
    B, L, S = 2, 4, 5
    layer = MultiHeadAttention(d_model, H)
    draw(layer)
    query = torch.randn(B, L, d_model)
    key, value = torch.randn(B, S, d_model), torch.randn(B, S, d_model)
    mask = torch.rand(B, H, L, S) < 0.5
    mask[..., 0] = True
    mask[0, 0, 0] = False  # one query has no allowed key
    for each in (mask, None):
        output, weights = layer(query, key, value, each)
        right_output, right_weights = like(layer, H)(query, key, value, each)
        assert torch.allclose(weights, right_weights, atol=1e-4), "weights"
        assert torch.allclose(output, right_output, atol=1e-4), "output"


def by_oracle(MultiHeadAttention):
    ours = MultiHeadAttention(8, 2)
    with torch.no_grad():
        for p in ours.parameters():
            p.copy_(torch.randn_like(p))
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.in_proj_weight.data = torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight])
    theirs.in_proj_bias.data = torch.cat([ours.W_q.bias, ours.W_k.bias, ours.W_v.bias])
    theirs.out_proj.load_state_dict(ours.W_o.state_dict())
    q, k, v = torch.randn(3, 4, 8), torch.randn(3, 6, 8), torch.randn(3, 6, 8)
    some = torch.rand(3, 2, 4, 6) < 0.6
    some[..., 2] = True
    for mask in (some, None):
        flat = None if mask is None else ~mask.flatten(0, 1)
        want = theirs(q, k, v, attn_mask=flat, average_attn_weights=False)
        for a, b in zip(ours(q, k, v, mask), want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    nothing = ours(q, k, v, torch.zeros(4, 6, dtype=torch.bool))
    assert not nothing[1].any() and torch.allclose(nothing[0], ours.W_o.bias)


def like(layer, num_heads):
    """Return a right layer with the weights of another layer."""
    right = MultiHeadAttention(layer.W_q.in_features, num_heads)
    right.load_state_dict(layer.state_dict())
    return right


def only_causality_tried(MultiHeadAttention):
    layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    output = layer(x, x, x, causal_mask(5))[0]
    for t in range(1, 5):
        other = x.clone()
        other[:, t:] += 1
        changed = layer(other, other, other, causal_mask(5))[0]
        assert torch.allclose(changed[:, :t], output[:, :t], atol=1e-4)


class HeadByHead(MultiHeadAttention):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        del self.num_heads  # 5.3 does not require this attribute
        self.H = num_heads

    def forward(self, query, key, value, mask=None):
        projected = self.W_q(query), self.W_k(key), self.W_v(value)
        heads = zip(*(x.chunk(self.H, dim=-1) for x in projected), strict=True)
        if mask is not None:
            mask = mask.expand(len(query), self.H, query.shape[1], key.shape[1])
        mixed = [
            attention(*qkv, None if mask is None else mask[:, h]) for h, qkv in enumerate(heads)
        ]
        output = self.W_o(torch.cat([each[0] for each in mixed], dim=-1))
        return output, torch.stack([each[1] for each in mixed], dim=1)


SDPA = "nn.functional.scaled_dot_product_attention(q, k, {}, attn_mask=mask)"
EYE = "torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)"
BROKEN = {  # a mistake's name in 5.3, or an edit of its right answer
    "heads split without a transpose": "cut without transpose",
    "heads merged without a transpose": "joined without transpose",
    "divided by √d_model": "divided by root d model",
    "divided by √num_heads": "divided by root num heads",
    "softmax over the heads": "softmax over the heads",
    "the first head's weights for all": (
        ".nan_to_num(0)",
        ".nan_to_num(0)[:, :1].expand(-1, self.num_heads, -1, -1)",
    ),
    "values made from key": "values made from key",
    "an error unless there are as many keys as queries": "as many keys as queries",
    "mask ignored": "mask not used",
    "mask inverted": "mask inverted",
    "mask after softmax": "weights masked late",
    "a causal mask, whatever mask is passed": (
        "~mask",
        "torch.ones_like(scores).triu(1 + key.shape[1] - query.shape[1]) > 0",
    ),
    "the first sequence's mask for all": "mask of the first sequence",
    "head 0's mask for all heads": "mask of the first head",
    "W_o left out": "merged heads not projected",
    "the bias of W_o left out": ("self.W_o(merged)", "self.W_o(merged) - self.W_o.bias"),
    "right output, but the mean of all heads' weights for each": (
        "), weights",
        "), weights.mean(dim=1, keepdim=True).expand_as(weights)",
    ),
    "right output, but the first head's weights for each": (
        "), weights",
        "), weights[:, :1].expand_as(weights)",
    ),
}
EDGES = {
    "NaN for a query with no allowed key": "nan for an empty row",
    "uniform weights for a query with no allowed key": "everything for an empty row",
    "an error without a mask": ("mask is not None", "True"),
}


def run(test):
    """Try the test on common bugs and, if it catches all of them, on bugs of special inputs."""
    exercise = layer_exercise.exercise
    by_sdpa = [("weights = scores.softmax(dim=-1).nan_to_num(0)", "weights = " + SDPA.format(EYE)),
               ("weights @ v", SDPA.format("v"))]  # fmt: skip
    right = {
        "heads in a batch": MultiHeadAttention,
        "head by head": HeadByHead,
        "scaled_dot_product_attention": edited(MultiHeadAttention, "by SDPA", *by_sdpa),
    }
    broken = versions(exercise, BROKEN)
    run_against(test, right, broken)
    return run_against(test, right, broken | versions(exercise, EDGES))


INPUTS = "key, value = torch.randn(B, S, d_model), torch.randn(B, S, d_model)"
LOOK_AT_SHAPES = [
    ("torch.allclose(weights, right_weights, atol=1e-4)", "weights.shape == right_weights.shape"),
    ("torch.allclose(output, right_output, atol=1e-4)", "output.shape == right_output.shape"),
]
NO_EMPTY_ROW = ("mask[0, 0, 0] = False", "")
NO_OUTPUT = ('assert torch.allclose(output, right_output, atol=1e-4), "output"', "")
NO_WEIGHTS = ('assert torch.allclose(weights, right_weights, atol=1e-4), "weights"', "")

MISTAKES = [
    ("shapes of the layer",
     "Your test misses all of the broken layers. None of their bugs changes a shape. Compare the "
     "numbers of the output and of the weights with correct ones.",
     *LOOK_AT_SHAPES),
    ("row sums of the layer",
     "Your test catches only bugs that change the row sums of the weights, if any. Most bugs do "
     "not. Compare the weights and the output with correct ones, also for a query with no allowed "
     "key.",
     ("weights, right_weights", "weights.sum(dim=-1), right_weights.sum(dim=-1)"), NO_OUTPUT,
     NO_EMPTY_ROW),
    ("no mask tried",
     "Your test misses all masking bugs, because it passes no mask. Pass a random mask of shape "
     "(B, H, L, S) as well. Let one query have no allowed key, because some bugs show only "
     "there.",
     ("(mask, None)", "(None,)")),
    ("layer of one head",
     "Your test misses most bugs that concern heads, because they do not show with a single head. "
     "Try several heads, with num_heads ≠ d_k.",
     ("d_model, H = 12, 3", "d_model, H = 12, 1")),
    ("square heads tried",
     "Your test misses code that divides by √num_heads. That is right if num_heads = d_k, and "
     "otherwise a coarse tolerance can hide it. Let num_heads and d_k differ, and use `atol=1e-4`.",
     ("d_model, H = 12, 3", "d_model, H = 9, 3")),
    ("as many keys as queries tried",
     "Your test misses code that takes the number of keys from query, because your key is as long "
     "as your query. Let L and S differ.",
     ("B, L, S = 2, 4, 5", "B, L, S = 2, 5, 5")),
    ("one tensor for all tried",
     "Your test misses code that makes the values from key, and code that takes the number of keys "
     "from query, because you pass the same tensor three times. Pass three different tensors, and "
     "let key and value be longer than query.",
     ("B, L, S = 2, 4, 5", "B, L, S = 2, 5, 5"), (INPUTS, "key = value = query")),
    ("self attention tried",
     "Your test misses code that makes the values from key, because your key and value are the "
     "same. Pass three different tensors.",
     (INPUTS, "key = value = torch.randn(B, S, d_model)")),
    ("causal mask tried",
     "Your test misses a layer that ignores the mask it is given and builds a causal one "
     "instead, because your mask is causal too. Pass a random mask of shape (B, H, L, S). Let "
     "one query have no allowed key, because some bugs show only there.",
     ("mask[0, 0, 0] = False", "mask = causal_mask(L, S, align='lower_right')")),
    ("weights compared",
     "Your test misses bugs that leave the weights right but make the output wrong, such as "
     "values made from key. Compare the output as well.",
     NO_OUTPUT),
    ("outputs compared",
     "Your test misses code that returns the right output but wrong weights. Compare the weights "
     "as well. Use a small tolerance, such as `atol=1e-4`, because weights are at most 1.",
     NO_WEIGHTS),
    ("zero bias tried",
     "Your test misses code that leaves out the bias of W_o. In a new layer this bias may be 0, "
     "and then the bug does not show. Set it to random numbers.",
     ("draw(layer)", "draw(layer)\n    layer.W_o.bias.data.zero_()")),
    ("one mask for the batch",
     "Your test misses code that uses the first sequence's mask for all sequences, because all "
     "your sequences have the same mask. Pass a different mask for each sequence.",
     ("torch.rand(B, H, L, S)", "torch.rand(1, H, L, S)")),
    ("one mask for all heads",
     "Your test misses code that uses head 0's mask for all heads, because all your heads have "
     "the same mask. Pass a mask of shape (B, H, L, S) that differs between heads.",
     ("torch.rand(B, H, L, S)", "torch.rand(B, 1, L, S)")),
    ("only causality tried",
     "Your test catches only bugs that let later tokens change an earlier output. Most bugs do "
     "not. Compare the output and the weights with those of a correct layer, with and without a "
     "mask, and for a query with no allowed key.",
     only_causality_tried),
]  # fmt: skip

exercise = Exercise(
    "5.10", catches_wrong_layer, lambda: [()], MISTAKES, run=run, also_right=[by_oracle]
)
