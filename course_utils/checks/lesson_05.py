"""Lesson 05's exercises: heads split and merged, the layer, its weights, caches, and tests."""

import re

import torch
import torch.nn.functional as F
from torch import nn

from course_utils import attention as shared
from course_utils.attention import attention, causal_mask, dot_product_scores, merge_heads
from course_utils.checks import sandbox
from course_utils.checks.catching import run_against
from course_utils.checks.compare import read
from course_utils.checks.engine import Complaint, Exercise, call_with_clones, owned
from course_utils.checks.layouts import layer_outputs

# 5.1 split_heads


def split_heads(x, num_heads):
    if x.shape[-1] % num_heads:
        raise ValueError(f"num_heads must divide d_model = {x.shape[-1]}, got {num_heads}")
    return shared.split_heads(x, num_heads)


def _widths_to_split():
    rng = torch.Generator().manual_seed(51)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=rng, dtype=dtype)

    return [
        (normal(2, 5, 12), 3),
        (normal(3, 4, 8, dtype=torch.float32), 2),
        (normal(10, 3, 2).permute(2, 1, 0), 5),  # not contiguous
        (normal(4, 7, 6), 6),
        (normal(2, 4, 6), 1),
        (normal(2, 5, 6), 4),
    ]


def _split_or_error(answer, x, num_heads):
    """Return the result; where heads do not divide the width, how good the error is, 0 to 1."""
    if x.shape[-1] % num_heads == 0:
        return call_with_clones(answer, x, num_heads)
    try:
        answer(x.clone(), num_heads)
    except NotImplementedError:
        raise
    except ValueError as error:
        named = {int(number) for number in re.findall(r"\d+", str(error))}
        return [torch.tensor(1.0 if {x.shape[-1], num_heads} <= named else 0.5)]
    except Exception:
        return [torch.tensor(0.0)]
    return [torch.tensor(0.0)]


splitting = Exercise("5.1", split_heads, _widths_to_split, names="H L d_k", run=_split_or_error)


@splitting.mistake(
    "right for heads that divide the width; otherwise raise ValueError and name both numbers"
)
def no_value_error(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@splitting.mistake(
    "right, and a ValueError comes where it should; it does not name num_heads and d_model in "
    "numbers"
)
def error_without_numbers(x, num_heads):
    if x.shape[-1] % num_heads:
        raise ValueError("num_heads must divide d_model")
    return shared.split_heads(x, num_heads)


def _splits(hint):
    """Register a wrong way of splitting, which raises ValueError where it should."""

    def register(answer):
        def checked(x, num_heads):
            split_heads(x, num_heads)
            return answer(x, num_heads)

        checked.__name__ = answer.__name__
        splitting.mistake(hint)(checked)
        return answer

    return register


@_splits(
    "right shape, wrong numbers: reshaping to (B, H, L, d_k) at once runs on from token to token; "
    "cut the width first, then transpose"
)
def reshaped_at_once(x, num_heads):
    B, L, d_model = x.shape
    return x.reshape(B, num_heads, L, d_model // num_heads)


@_splits("the width is cut, but tokens still stand before heads: transpose L and H")
def heads_after_tokens(x, num_heads):
    return x.unflatten(-1, (num_heads, -1))


@_splits(
    "the heads take turns, column by column: head h should hold d_k columns that are neighbours"
)
def columns_dealt_out(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


@_splits("the last two dimensions are swapped: (B, H, L, d_k), tokens before columns")
def tokens_last(x, num_heads):
    return shared.split_heads(x, num_heads).transpose(-2, -1)


@_splits("the heads stand before the batch: (B, H, L, d_k)")
def heads_before_the_batch(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1))


@_splits("num_heads is taken for the width of a head: there should be num_heads of them")
def number_taken_for_width(x, num_heads):
    return shared.split_heads(x, x.shape[-1] // num_heads)


@_splits("that is the first head alone: all of them are wanted")
def one_head_alone(x, num_heads):
    return shared.split_heads(x, num_heads)[:, 0]


# 5.2 merge_heads


def _heads_to_merge():
    rng = torch.Generator().manual_seed(52)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=rng, dtype=dtype)

    return [
        (normal(2, 3, 5, 4),),
        (normal(3, 2, 4, 5, dtype=torch.float32),),
        (normal(2, 4, 3, 6).transpose(1, 2),),  # not contiguous
        (normal(2, 1, 4, 3),),
    ]


merging = Exercise("5.2", merge_heads, _heads_to_merge, names="L d_model")


@merging.mistake(
    "right shape, wrong numbers: without a transpose first, a row holds several tokens of one head"
)
def merged_without_transpose(x):
    B, H, L, d_k = x.shape
    return x.reshape(B, L, H * d_k)


@merging.mistake("the tokens stand before the heads now, but the heads are still apart: flatten")
def transposed_only(x):
    return x.transpose(1, 2)


@merging.mistake("the heads are dealt out column by column: keep each head's columns together")
def dealt_column_by_column(x):
    return x.permute(0, 2, 3, 1).flatten(-2)


@merging.mistake("the heads are added up: put them side by side")
def heads_added(x):
    return x.sum(dim=1)


@merging.mistake("the heads are averaged: put them side by side")
def heads_averaged(x):
    return x.mean(dim=1)


@merging.mistake("the heads are joined one after another along the tokens, not side by side")
def joined_along_tokens(x):
    return x.flatten(1, 2)


@merging.mistake("head and width are merged, but the tokens stand last: (B, L, H·d_k)")
def tokens_at_the_end(x):
    return merge_heads(x).transpose(-2, -1)


# 5.3 MultiHeadAttention


def _layers_and_inputs():
    rng = torch.Generator().manual_seed(53)

    def probe(B, L, S, num_heads, d_k, mask):
        sizes = num_heads, d_k, num_heads * d_k
        matrices = {
            name: torch.randn(*sizes, generator=rng) / sizes[-1] ** 0.5
            for name in ("W_q", "W_k", "W_v", "W_o")
        }
        inputs = [torch.randn(B, n, sizes[-1], generator=rng) for n in (L, S, S)]
        shape = {"each": (L, S), "padding": (B, 1, 1, S), "heads": (B, num_heads, L, S)}.get(mask)
        if mask == "empty row":
            mask = torch.ones(L, S).tril(-1) > 0
        elif mask is not None:
            mask = torch.rand(shape, generator=rng) < 0.5
            mask[..., 1] = True
        return sizes[-1], num_heads, matrices, (*inputs, mask)

    return [
        probe(2, 4, 5, 3, 2, None),
        probe(3, 5, 4, 2, 4, None),
        probe(2, 3, 6, 4, 2, None),
        probe(2, 4, 6, 3, 2, "each"),
        probe(3, 4, 5, 2, 3, "padding"),
        probe(2, 4, 5, 3, 4, "heads"),
        probe(2, 4, 4, 3, 2, "empty row"),
    ]


def _layer_outputs(answer, d_model, num_heads, matrices, inputs):
    """Build the learner's layer, give it our matrices under every reading, and run it."""
    return layer_outputs(answer(d_model, num_heads), matrices, *inputs)


layer = Exercise(
    "5.3",
    shared.MultiHeadAttention,
    _layers_and_inputs,
    names="L d_model|H L S",
    run=_layer_outputs,
)


class _Layer(shared.MultiHeadAttention):
    """A MultiHeadAttention with one step done otherwise."""

    def split(self, x):
        return shared.split_heads(x, self.num_heads)

    def mix(self, q, k, v, mask):
        return attention(q, k, v, mask)

    def merge(self, heads):
        return merge_heads(heads)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.W_q(query), self.W_k(key), self.W_v(value)
        heads, weights = self.mix(self.split(q), self.split(k), self.split(v), mask)
        return self.W_o(self.merge(heads)), weights


def _weights(scores, mask):
    """Return softmax over the keys that the mask allows, zeros where it allows none."""
    if mask is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0)


@layer.mistake(
    "the heads are cut by reshaping to (B, H, L, d_k) at once: right shape, tokens mixed up; cut "
    "the width, then transpose"
)
class cut_without_transpose(_Layer):
    def split(self, x):
        return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


@layer.mistake("num_heads is taken for the width of a head: there should be num_heads of them")
class heads_taken_for_width(_Layer):
    def split(self, x):
        return shared.split_heads(x, x.shape[-1] // self.num_heads)


@layer.mistake(
    "the heads are merged by reshaping alone: transpose back to (B, L, H, d_k) first, or a token's "
    "row holds several tokens"
)
class joined_without_transpose(_Layer):
    def merge(self, heads):
        B, H, L, d_k = heads.shape
        return heads.reshape(B, L, H * d_k)


@layer.mistake(
    "the heads are cut and merged by reshaping alone: what is cut so is no token's, though the "
    "merge puts it back in place; transpose L and H, both times"
)
class cut_and_joined_without_transpose(cut_without_transpose, joined_without_transpose):
    pass


@layer.mistake(
    "the scores are divided by √d_model: a head's scores are sums over d_k products, so √d_k"
)
class divided_by_root_d_model(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v, mask, scale=(q.shape[-1] * self.num_heads) ** -0.5)


@layer.mistake("the scores are divided by √num_heads: a head's scores are sums over d_k products")
class divided_by_root_num_heads(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v, mask, scale=self.num_heads**-0.5)


@layer.mistake("the scores of the heads are not divided by √d_k")
class not_divided(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v, mask, scale=1.0)


@layer.mistake(
    "there is one set of weights for all heads: split into heads before the scores, so that each "
    "has a softmax of its own"
)
class one_softmax_for_all(_Layer):
    def forward(self, query, key, value, mask=None):
        mask = mask[:, 0] if mask is not None and mask.ndim == 4 else mask
        mixed, weights = attention(self.W_q(query), self.W_k(key), self.W_v(value), mask)
        return self.W_o(mixed), weights


class _Filled(_Layer):
    """A layer that fills where the mask forbids, and does no more about it."""

    fill, dim = -torch.inf, -1

    def mix(self, q, k, v, mask):
        scores = dot_product_scores(q, k) / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, self.fill)
        weights = self.mended(scores.softmax(dim=self.dim))
        return weights @ v, weights

    def mended(self, weights):
        return weights


@layer.mistake("softmax runs over the heads: the weights over the keys must sum to 1, dim=-1")
class softmax_over_the_heads(_Filled):
    fill, dim = -1e9, 1


@layer.mistake(
    "softmax runs over the heads, and what NaN the mask makes is set to 0: the weights over the "
    "keys must sum to 1, dim=-1"
)
class softmax_over_the_heads_mended(_Filled):
    dim = 1

    def mended(self, weights):
        return weights.nan_to_num(0)


@layer.mistake("softmax runs over the queries: the weights over the keys must sum to 1, dim=-1")
class softmax_over_the_queries(_Layer):
    def mix(self, q, k, v, mask):
        weights = attention(k, q, q, None if mask is None else mask.mT)[1].mT
        return weights @ v, weights


@layer.mistake("the mask is not used")
class mask_not_used(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v)


@layer.mistake(
    "right, unless each head has a mask of its own, (B, H, L, S): head 0's is used for all"
)
class mask_of_the_first_head(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v, mask[:, :1] if mask is not None and mask.ndim == 4 else mask)


@layer.mistake("the mask is turned around: True = may attend")
class mask_turned_around(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v, None if mask is None else ~mask)


@layer.mistake(
    "the weights are masked after softmax: rows no longer sum to 1, and the forbidden keys are "
    "heard in the denominator"
)
class weights_masked_late(_Layer):
    def mix(self, q, k, v, mask):
        weights = attention(q, k, v)[1]
        weights = weights if mask is None else weights * mask
        return weights @ v, weights


@layer.mistake("right, except where a query may see nothing: NaN there; give weights of 0")
class nan_for_an_empty_row(_Filled):
    pass


@layer.mistake(
    "right, except where a query may see nothing: a finite fill such as -1e9 attends to everything "
    "there; give weights of 0"
)
class everything_for_an_empty_row(_Filled):
    fill = -1e9


@layer.mistake("the values are made from key: W_v reads value")
class values_made_from_key(_Layer):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, key, mask)


@layer.mistake("key and value are not used: only queries come from query")
class only_query_used(_Layer):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, query, query, mask)


@layer.mistake("W_o is not used: project the merged heads")
class merged_heads_not_projected(_Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.W_q(query), self.W_k(key), self.W_v(value)
        heads, weights = self.mix(self.split(q), self.split(k), self.split(v), mask)
        return self.merge(heads), weights


@layer.mistake("right output, but the weights are averaged over heads: return those of each head")
class weights_averaged(_Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output, weights.mean(dim=1)


@layer.mistake("return two things, the output and the weights of each head")
class output_without_weights(_Layer):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask)[0]


@layer.mistake("the heads are dealt out column by column: head h takes d_k neighbouring columns")
class heads_dealt_out(_Layer):
    def split(self, x):
        return x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)


@layer.mistake(
    "the heads are dealt out column by column and collected so again: consistent, but head h takes "
    "d_k neighbouring columns"
)
class heads_dealt_out_and_collected(heads_dealt_out):
    def merge(self, heads):
        return heads.permute(0, 2, 3, 1).flatten(-2)


# 5.4 count_parameters


def count_parameters(d_model, num_heads, bias=True):
    return 4 * d_model * d_model + (4 * d_model if bias else 0)


def _number(answer, *args):
    """Return the answer's number; to count by building a layer, which draws, is right too."""
    with sandbox.seeded():
        result = answer(*args)
    number = read(result)
    return [number.item() if number is not None and number.numel() == 1 else result]


counting = Exercise(
    "5.4",
    count_parameters,
    lambda: [(12, 3, True), (8, 2, False), (10, 5, True), (64, 16, False), (6, 2, True)],
    run=_number,
)


@counting.mistake(
    "each head is counted at full width; it has d_model / H columns, and all together d_model"
)
def every_head_full_width(d_model, num_heads, bias=True):
    return (4 * num_heads) * d_model * d_model + (4 * num_heads * d_model if bias else 0)


@counting.mistake("one head is counted: there are H of them, and a full W_o")
def one_head_counted(d_model, num_heads, bias=True):
    d_k = d_model // num_heads
    return 4 * d_model * d_k + (3 * d_k + d_model if bias else 0)


@counting.mistake(
    "W_q, W_k and W_v are counted for one head: they make queries, keys, values of all"
)
def inputs_of_one_head(d_model, num_heads, bias=True):
    d_k = d_model // num_heads
    return 3 * (d_model + bias) * d_k + (d_model + bias) * d_model


@counting.mistake("W_o is missing: four matrices, not three")
def output_not_counted(d_model, num_heads, bias=True):
    return 3 * d_model * d_model + (3 * d_model if bias else 0)


@counting.mistake("the biases are missing: one of d_model entries for each of the four")
def biases_not_counted(d_model, num_heads, bias=True):
    return 4 * d_model * d_model


@counting.mistake("biases are counted also where there are none: look at bias")
def biases_always_counted(d_model, num_heads, bias=True):
    return 4 * d_model * d_model + 4 * d_model


@counting.mistake("a bias has d_model entries, and there are four of them, not one")
def one_bias_counted(d_model, num_heads, bias=True):
    return 4 * d_model * d_model + (d_model if bias else 0)


@counting.mistake("W_o is counted once for each head: it has H · d_k = d_model rows in all")
def output_for_each_head(d_model, num_heads, bias=True):
    return (3 + num_heads) * d_model * d_model + (4 * d_model if bias else 0)


# 5.5 copy_weights


def copy_weights(theirs, ours):
    return _copied(theirs, ours)


def _copied(theirs, ours, order=(0, 1, 2), turn="", by_head=False, biases="qkvo", output=True):
    """Copy the weights of an nn.MultiheadAttention, rightly or with one thing done otherwise."""

    def third(stacked, i):
        if by_head:
            rows = stacked.unflatten(0, (theirs.num_heads, 3, -1))
            return rows[:, i].flatten(0, 1)
        return stacked.chunk(3)[i]

    with torch.no_grad():
        for linear, i in zip((ours.W_q, ours.W_k, ours.W_v), order, strict=True):
            weight = third(theirs.in_proj_weight, i)
            linear.weight.copy_(weight.T if "qkv" in turn else weight)
            if "qkv" in biases and theirs.in_proj_bias is not None:
                linear.bias.copy_(third(theirs.in_proj_bias, i))
        if output:
            weight = theirs.out_proj.weight
            ours.W_o.weight.copy_(weight.T if "o" in turn else weight)
            if "o" in biases and ours.W_o.bias is not None:
                ours.W_o.bias.copy_(theirs.out_proj.bias)


def _changed(module, before):
    """Tell whether a module's weights differ from a copy of its state."""
    now = module.state_dict()
    return now.keys() != before.keys() or any(not now[name].equal(before[name]) for name in now)


def _normal(parameters, rng):
    for parameter in parameters:
        nn.init.normal_(parameter, std=0.5, generator=rng)


_NO_BIASES = "right with biases; for bias=False in_proj_bias is None, and there is none to copy"


def _ported_outputs(answer, d_model, num_heads, bias, B, L, S):
    """Build both layers, let the answer copy, and run ours."""
    rng = torch.Generator().manual_seed(55)
    with sandbox.seeded():  # building layers draws from the global state
        theirs = nn.MultiheadAttention(d_model, num_heads, bias=bias, batch_first=True).double()
        ours = shared.MultiHeadAttention(d_model, num_heads, bias).double()
    _normal([*theirs.parameters(), *ours.parameters()], rng)
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    try:
        returned = answer(theirs, ours)
    except (AttributeError, TypeError) as error:
        if bias or "NoneType" not in str(error):
            raise
        raise Complaint("biases taken for granted", _NO_BIASES) from None
    if _changed(theirs, before):
        raise Complaint("changes theirs", "it changes PyTorch's layer: copy from theirs to ours")
    ported = returned if isinstance(returned, nn.Module) else ours
    query = torch.randn(B, L, d_model, generator=rng, dtype=torch.float64)
    key, value = torch.randn(2, B, S, d_model, generator=rng, dtype=torch.float64)
    result = owned(ported)(query, key, value)
    with torch.no_grad():
        for parameter in ported.parameters():
            owned(parameter.add_)(1)
    if _changed(theirs, before):
        hint = "ours shares memory with theirs, so that to train one changes both: copy the numbers"
        raise Complaint("shares memory", hint)
    return [result]


porting = Exercise(
    "5.5",
    copy_weights,
    lambda: [(12, 3, True, 2, 4, 5), (8, 2, True, 3, 5, 4), (6, 2, False, 4, 3, 5)],
    names="L d_model|H L S",
    run=_ported_outputs,
)

for _name, _hint, _kind in [
    (
        "weights transposed",
        "the matrices are transposed: both layers keep theirs as nn.Linear does, so copy as is",
        {"turn": "qkvo"},
    ),
    (
        "only inputs transposed",
        "W_q, W_k and W_v are transposed: in_proj_weight holds them as nn.Linear does, copy as is",
        {"turn": "qkv"},
    ),
    (
        "biases not copied",
        "the weights are right, the biases are not copied: in_proj_bias and out_proj.bias",
        {"biases": ""},
    ),
    (
        "output bias not copied",
        "all is right but the bias of W_o: out_proj.bias",
        {"biases": "qkv"},
    ),
    ("output not copied", "W_o is not copied: it is called out_proj there", {"output": False}),
    (
        "key and value exchanged",
        "key and value are exchanged: in_proj_weight holds q, k, v in this order",
        {"order": (0, 2, 1)},
    ),
    (
        "query and key exchanged",
        "query and key are exchanged: in_proj_weight holds q, k, v in this order",
        {"order": (1, 0, 2)},
    ),
    (
        "value taken first",
        "the order is turned: in_proj_weight holds q first, v last",
        {"order": (2, 1, 0)},
    ),
    (
        "rows read head by head",
        "the rows are read head by head, q, k, v of each: in_proj_weight holds all of q, then all "
        "of k, then all of v",
        {"by_head": True},
    ),
    (
        "queries for all three",
        "all three get the first third: W_k is the second, W_v the third",
        {"order": (0, 0, 0)},
    ),
]:

    def _wrong(theirs, ours, _kind=_kind):
        _copied(theirs, ours, **_kind)

    _wrong.__name__ = _name.replace(" ", "_")
    porting.mistake(_hint)(_wrong)


@porting.mistake(
    "nothing is copied: write into the parameters, W_q.weight.copy_(...), not to names"
)
def nothing_copied(theirs, ours):
    pass


@porting.mistake(_NO_BIASES)
def biases_taken_for_granted(theirs, ours):
    theirs.in_proj_bias.chunk(3)
    _copied(theirs, ours)


# 5.6 without_head


def without_head(layer, x, head):
    return _without(layer, x, head)


def _heads(layer, x, scale=None):
    """Return what each head hands over (..., H, L, d_k) and its rows of W_o (H, d_k, d_model)."""
    q, k, v = (shared.split_heads(W(x), layer.num_heads) for W in (layer.W_q, layer.W_k, layer.W_v))
    return attention(q, k, v, scale=scale)[0], layer.W_o.weight.T.unflatten(
        0, (layer.num_heads, -1)
    )


def _without(layer, x, head, keep=None, scale=None):
    """Return the layer's output with each head's part times ``keep`` (H,)."""
    heads, blocks = _heads(layer, x, scale)
    if keep is None:
        keep = (torch.arange(layer.num_heads) != head).to(x.dtype)
    parts = (heads @ blocks) * keep[:, None, None]  # (..., H, L, d_model)
    return parts.sum(dim=-3) + layer.W_o.bias


def _ablated(answer, d_model, num_heads, head, *shape):
    """Build a layer, let the answer run it without a head; the layer must stay as it is."""
    rng = torch.Generator().manual_seed(56)
    with sandbox.seeded():
        layer = shared.MultiHeadAttention(d_model, num_heads).double()
    _normal(layer.parameters(), rng)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    x = torch.randn(*shape, d_model, generator=rng, dtype=torch.float64)
    whole = layer(x, x, x)[0]
    result = answer(layer, x, head)
    if _changed(layer, before) or not owned(lambda: layer(x, x, x)[0].equal(whole))():
        hint = "it leaves the layer changed: work on a copy, or put it back (weights, hooks)"
        raise Complaint("the layer is changed", hint)
    return [result]


ablating = Exercise(
    "5.6",
    without_head,
    lambda: [(12, 3, 1, 2, 5), (8, 4, 0, 3, 4), (10, 2, 1, 2, 3), (12, 3, 2, 4, 5)],
    names="L d_model",
    run=_ablated,
)


@ablating.mistake("that is the whole output: nothing is taken away")
def nothing_taken_away(layer, x, head):
    return layer(x, x, x)[0]


@ablating.mistake("the scores of the other heads are not divided by √d_k, as the layer does")
def ablated_not_scaled(layer, x, head):
    return _without(layer, x, head, scale=1.0)


@ablating.mistake("that is the part of this head alone: the others are wanted, without it")
def that_head_alone(layer, x, head):
    keep = torch.zeros(layer.num_heads, dtype=x.dtype)
    keep[head] = 1
    return _without(layer, x, head, keep)


@ablating.mistake("another head is missing: heads count from 0")
def counted_from_one(layer, x, head):
    return _without(layer, x, (head - 1) % layer.num_heads)


@ablating.mistake("the bias of W_o is lost: it belongs to no head")
def bias_lost(layer, x, head):
    return _without(layer, x, head) - layer.W_o.bias


@ablating.mistake("the remaining heads are scaled up; take the head's part away, no more")
def others_scaled_up(layer, x, head):
    H = layer.num_heads
    return (_without(layer, x, head) - layer.W_o.bias) * H / (H - 1) + layer.W_o.bias


@ablating.mistake(
    "the rows of W_o are set to 0, as nn.Linear keeps it: they are outputs; the head's are columns"
)
def rows_in_place_of_columns(layer, x, head):
    output = layer(x, x, x)[0]
    d_k = x.shape[-1] // layer.num_heads
    part = torch.ones_like(output)
    part[..., head * d_k : (head + 1) * d_k] = 0
    return (output - layer.W_o.bias) * part + layer.W_o.bias


@ablating.mistake("one column of W_o is set to 0: a head has d_k of them")
def one_column_of_the_head(layer, x, head):
    merged = merge_heads(_heads(layer, x)[0])
    return layer(x, x, x)[0] - merged[..., head, None] * layer.W_o.weight[:, head]


@ablating.mistake(
    "every H-th column is set to 0: a head's columns are neighbours, head · d_k and those after it"
)
def every_hth_column(layer, x, head):
    merged = merge_heads(_heads(layer, x)[0]).clone()
    merged[..., head :: layer.num_heads] = 0
    return layer.W_o(merged)


@ablating.mistake(
    "the head's scores are set to 0, which makes its weights equal: it still hands over an "
    "average; set what it hands over to 0"
)
def head_made_uniform(layer, x, head):
    heads, blocks = _heads(layer, x)
    v = shared.split_heads(layer.W_v(x), layer.num_heads)[..., head, :, :]
    return _without(layer, x, head) + v.mean(dim=-2, keepdim=True) @ blocks[head]


@ablating.mistake("W_v's weights are 0 for this head, but its bias is still handed over")
def bias_of_the_values_left(layer, x, head):
    bias = layer.W_v.bias.unflatten(0, (layer.num_heads, -1))[head]
    return _without(layer, x, head) + bias @ _heads(layer, x)[1][head]


# 5.7 grouped_attention


def grouped_attention(q, k, v):
    return _grouped(q, k, v, lambda each, n: each.repeat_interleave(n, dim=1))


def _grouped(q, k, v, spread):
    group = q.shape[1] // k.shape[1]
    return attention(q, spread(k, group), spread(v, group))


def _groups():
    rng = torch.Generator().manual_seed(57)

    def probe(B, H, H_kv, L, S, d_k, d_v, dtype=torch.float64):
        shapes = (B, H, L, d_k), (B, H_kv, S, d_k), (B, H_kv, S, d_v)
        return tuple(torch.randn(*shape, generator=rng, dtype=dtype) for shape in shapes)

    return [
        probe(2, 6, 2, 4, 5, 3, 2),
        probe(3, 4, 1, 5, 4, 2, 3),
        probe(1, 6, 3, 3, 7, 4, 5, dtype=torch.float32),
        probe(2, 3, 3, 4, 5, 2, 4),
    ]


grouping = Exercise("5.7", grouped_attention, _groups, names="H L d_v|H L S")


@grouping.mistake(
    "the key heads take turns, 0 1 0 1: neighbouring query heads share one, 0 0 1 1, as "
    "repeat_interleave does and repeat does not"
)
def key_heads_take_turns(q, k, v):
    return _grouped(q, k, v, lambda each, n: each.repeat(1, n, 1, 1))


@grouping.mistake("all query heads use the first key head; that is right only if there is one")
def first_key_head_for_all(q, k, v):
    return attention(q, k[:, :1], v[:, :1])


@grouping.mistake("the key heads are averaged; each group keeps its own")
def key_heads_averaged(q, k, v):
    return attention(q, k.mean(dim=1, keepdim=True), v.mean(dim=1, keepdim=True))


@grouping.mistake("the queries of a group are averaged: all H query heads stay, keys are shared")
def queries_averaged(q, k, v):
    return attention(q.unflatten(1, (k.shape[1], -1)).mean(dim=2), k, v)


@grouping.mistake("the keys are spread rightly, the values take turns: spread both the same way")
def values_take_turns(q, k, v):
    group = q.shape[1] // k.shape[1]
    return attention(q, k.repeat_interleave(group, dim=1), v.repeat(1, group, 1, 1))


@grouping.mistake("the values are spread rightly, the keys take turns: spread both the same way")
def keys_take_turns(q, k, v):
    group = q.shape[1] // k.shape[1]
    return attention(q, k.repeat(1, group, 1, 1), v.repeat_interleave(group, dim=1))


@grouping.mistake("right output, but the weights are missing: return both")
def grouped_output_alone(q, k, v):
    return grouped_attention(q, k, v)[0]


@grouping.mistake("the scores are not divided by √d_k")
def grouped_not_scaled(q, k, v):
    group = q.shape[1] // k.shape[1]
    return attention(*(q, *(t.repeat_interleave(group, dim=1) for t in (k, v))), scale=1.0)


@grouping.mistake("tokens are repeated in place of heads: dim=1 is the heads', dim=2 the tokens'")
def tokens_repeated(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=2).repeat_interleave(group, dim=1) for t in (k, v))
    return attention(q, k, v)


# 5.8 kv_cache_bytes


def kv_cache_bytes(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * layers * num_kv_heads * (d_model // num_heads) * bytes_each


caching = Exercise(
    "5.8",
    kv_cache_bytes,
    lambda: [
        (1, 8192, 32, 4096, 32, 8, 2),
        (3, 100, 5, 48, 6, 2, 4),
        (2, 1000, 7, 60, 5, 1, 2),
        (4, 50, 3, 24, 4, 4, 1),
    ],
    run=_number,
)


@caching.mistake("half of it: keys and values are kept, both")
def keys_alone(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return B * S * layers * num_kv_heads * (d_model // num_heads) * bytes_each


@caching.mistake(
    "a key head for each query head is counted, but num_kv_heads of them are kept; or their width "
    "is taken as d_model / num_kv_heads, but it is d_model / num_heads"
)
def all_query_heads_kept(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * layers * d_model * bytes_each


@caching.mistake(
    "the width of a head is d_model / num_heads, however few key heads there are; and if you "
    "counted num_heads / num_kv_heads heads, that is a group: num_kv_heads are kept"
)
def width_by_key_heads(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * layers * d_model // num_kv_heads * bytes_each


@caching.mistake("each key head is counted d_model wide: it has d_model / num_heads columns")
def key_heads_at_full_width(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * layers * num_kv_heads * d_model * bytes_each


@caching.mistake("that is one layer: each layer has a cache of its own")
def one_layer_counted(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * num_kv_heads * (d_model // num_heads) * bytes_each


@caching.mistake("that is one sequence: each of the B has a cache of its own")
def one_sequence_counted(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * S * layers * num_kv_heads * (d_model // num_heads) * bytes_each


@caching.mistake("that counts numbers: times bytes_each")
def numbers_counted(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * layers * num_kv_heads * (d_model // num_heads)


@caching.mistake("that is in bits: bytes are asked")
def bits_counted(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 16 * B * S * layers * num_kv_heads * (d_model // num_heads) * bytes_each


@caching.mistake("S² is the number of attention weights, which are not kept: the cache grows as S")
def weights_kept(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * B * S * S * layers * num_kv_heads * (d_model // num_heads) * bytes_each


# 5.9 catches_wrong_split


def catches_wrong_split(split_heads):
    x = torch.randn(2, 10, 3).transpose(1, 2)  # (B, L, d_model), not contiguous
    for num_heads in (1, 2, 5):
        heads = split_heads(x, num_heads)
        d_k = 10 // num_heads
        assert heads.shape == (2, num_heads, 3, d_k)
        for h in range(num_heads):
            assert torch.equal(heads[:, h], x[..., h * d_k : (h + 1) * d_k])


def _by_view(x, num_heads):
    B, L, d_model = x.shape
    return x.view(B, L, num_heads, d_model // num_heads).transpose(1, 2)


def _by_slices(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def _contiguous_only(x, num_heads):
    B, L, d_model = x.shape
    flat = x.view(-1)  # fails for a tensor that is not contiguous
    return flat.view(B, L, num_heads, d_model // num_heads).transpose(1, 2)


def _first_sequence(x, num_heads):
    return shared.split_heads(x[:1].expand_as(x), num_heads)


def _from_the_last(x, num_heads):
    return shared.split_heads(x, num_heads).flip(1)


def _first_for_all(x, num_heads):
    return shared.split_heads(x, num_heads)[:, :1].repeat(1, num_heads, 1, 1)


def _two_heads_right(x, num_heads):
    return (shared.split_heads if num_heads <= 2 else columns_dealt_out)(x, num_heads)


wrong_split = Exercise(
    "5.9",
    catches_wrong_split,
    lambda: [()],
    run=lambda test: run_against(
        test,
        {"by view": _by_view, "by slices": _by_slices, "by unflatten": shared.split_heads},
        {
            "reshaped at once, without a transpose": reshaped_at_once,
            "columns dealt out to the heads in turn": columns_dealt_out,
            "num_heads taken for the width of a head": number_taken_for_width,
            "heads in reverse order": _from_the_last,
            "the first head's columns for every head": _first_for_all,
            "the first sequence's for every sequence": _first_sequence,
            "right for one or two heads, and no more": _two_heads_right,
            "an error for a tensor that is not contiguous": _contiguous_only,
        },
    ),
)


def _turned(*shape):
    """Return random numbers of a shape (B, L, d_model), not contiguous."""
    torch.manual_seed(2)
    return torch.randn(*shape[::-1]).permute(2, 1, 0)


@wrong_split.mistake(
    "it looks at the shape alone, or at entries that are all equal, and most of these bugs keep "
    "those as they should be: compare with numbers that all differ"
)
def shape_of_heads_alone(split_heads):
    assert split_heads(torch.ones(2, 3, 10), 5).shape == (2, 5, 3, 2)


@wrong_split.mistake("it tries one head, where nothing is cut: try three or more")
def one_head_tried(split_heads):
    x = _turned(2, 3, 10)
    assert torch.equal(split_heads(x, 1), x[:, None])


@wrong_split.mistake("it tries one sequence: one that mixes up the batch gets through")
def one_sequence_tried(split_heads):
    x = _turned(1, 3, 10)
    assert torch.equal(split_heads(x, 5), _by_slices(x, 5))


@wrong_split.mistake("it tries two heads alone: code that is right for two gets through; try more")
def two_heads_tried(split_heads):
    x = _turned(2, 3, 10)
    assert torch.equal(split_heads(x, 2), _by_slices(x, 2))


@wrong_split.mistake(
    "its inputs lie in memory in order: code that fails for others gets through; hand it a "
    "transposed one"
)
def contiguous_tried(split_heads):
    x = _turned(2, 3, 10).contiguous()
    assert torch.equal(split_heads(x, 5), _by_slices(x, 5))


@wrong_split.mistake(
    "it looks whether all numbers are there, not where: most of these bugs only move them"
)
def only_which_numbers(split_heads):
    x = _turned(2, 3, 10)
    heads = split_heads(x, 5)
    assert torch.equal(heads.flatten().sort().values, x.flatten().sort().values)


@wrong_split.mistake("it compares the first head alone: the others may hold anything; compare all")
def first_head_compared(split_heads):
    x = _turned(2, 3, 10)
    assert torch.equal(split_heads(x, 5)[:, 0], x[..., :2])


@wrong_split.mistake(
    "num_heads taken for the width of a head gets through: with as many heads as columns in a head "
    "it is right, and a round trip undoes it; let H and d_k differ, and look at each head"
)
def as_many_heads_as_columns(split_heads):
    x = _turned(2, 3, 9)
    assert torch.equal(split_heads(x, 3), _by_slices(x, 3))


# 5.10 catches_wrong_layer


def catches_wrong_layer(MultiHeadAttention):
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3)
    _normal(layer.parameters(), None)
    query = torch.randn(2, 4, 12)
    key, value = torch.randn(2, 2, 5, 12)
    mask = torch.rand(2, 3, 4, 5) < 0.5
    mask[..., 0] = True
    expected = _Layer.forward(_like(layer), query, key, value, mask)
    for got, right in zip(layer(query, key, value, mask), expected, strict=True):
        assert torch.allclose(got, right, atol=1e-4)


def _like(layer):
    """Return a right layer with the weights of another."""
    right = _Layer(layer.W_q.in_features, layer.num_heads)
    right.load_state_dict(layer.state_dict())
    return right


class _HeadByHead(_Layer):
    def forward(self, query, key, value, mask=None):
        pieces = [
            each.chunk(self.num_heads, dim=-1)
            for each in (self.W_q(query), self.W_k(key), self.W_v(value))
        ]
        full = None
        if mask is not None:
            sizes = len(query), self.num_heads, query.shape[1], key.shape[1]
            full = mask.expand(sizes)
        mixed = [
            attention(*qkv, None if full is None else full[:, h])
            for h, qkv in enumerate(zip(*pieces, strict=True))
        ]
        output = self.W_o(torch.cat([each[0] for each in mixed], dim=-1))
        return output, torch.stack([each[1] for each in mixed], dim=1)


class _BySdpa(_Layer):
    def mix(self, q, k, v, mask):
        weights = F.scaled_dot_product_attention(
            q, k, torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:2], -1, -1), attn_mask=mask
        )
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), weights


class _FirstHeadsWeights(_Layer):
    def mix(self, q, k, v, mask):
        weights = attention(q, k, v, mask)[1][:, :1].expand(-1, self.num_heads, -1, -1)
        return weights @ v, weights


class _FirstHeadsWeightsReturned(_Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output, weights[:, :1].expand_as(weights)


class _MeanWeightsReturned(_Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output, weights.mean(dim=1, keepdim=True).expand_as(weights)


class _OwnCausalMask(_Layer):
    def mix(self, q, k, v, mask):
        causal = causal_mask(q.shape[-2], k.shape[-2])
        return attention(q, k, v, None if mask is None else causal)


class _FirstSequencesMask(_Layer):
    def mix(self, q, k, v, mask):
        return attention(q, k, v, mask[:1] if mask is not None and mask.ndim == 4 else mask)


class _NoBias(_Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output - self.W_o.bias, weights


wrong_layer = Exercise(
    "5.10",
    catches_wrong_layer,
    lambda: [()],
    run=lambda test: run_against(
        test,
        {
            "heads in a batch": _Layer,
            "head by head": _HeadByHead,
            "scaled_dot_product_attention": _BySdpa,
        },
        {
            "heads cut without a transpose": cut_without_transpose,
            "heads merged without a transpose": joined_without_transpose,
            "divided by √d_model": divided_by_root_d_model,
            "divided by √num_heads": divided_by_root_num_heads,
            "softmax over the heads": softmax_over_the_heads,
            "the first head's weights for all": _FirstHeadsWeights,
            "values made from key": values_made_from_key,
            "mask ignored": mask_not_used,
            "mask turned around": mask_turned_around,
            "mask after softmax": weights_masked_late,
            "a causal mask whatever the mask says": _OwnCausalMask,
            "the first sequence's mask for all": _FirstSequencesMask,
            "head 0's mask for all heads": mask_of_the_first_head,
            "W_o left out": merged_heads_not_projected,
            "the bias of W_o left out": _NoBias,
            "right output, but the mean of all heads' weights for each": _MeanWeightsReturned,
            "right output, but the first head's weights for each": _FirstHeadsWeightsReturned,
        },
    ),
)


def _tried(B=2, L=4, S=5, causal=False):
    """Return query (B, L, 12), key and value (B, S, 12) and a mask (B, 3, L, S)."""
    torch.manual_seed(3)
    mask = torch.rand(B, 3, L, S) < 0.5
    mask[..., 0] = True
    if causal:
        mask = causal_mask(L, S)
    return torch.randn(B, L, 12), *torch.randn(2, B, S, 12), mask


def _compare(MultiHeadAttention, query, key, value, mask, num_heads=3, items=(0, 1), biases=True):
    """Compare a layer with a right one; ``items`` are 0, the output, and 1, the weights."""
    layer = MultiHeadAttention(query.shape[-1], num_heads)
    _normal(layer.parameters(), None)
    if not biases:
        nn.init.zeros_(layer.W_o.bias)
    got = layer(query, key, value, mask)
    expected = _like(layer)(query, key, value, mask)
    for i in items:
        assert torch.allclose(got[i], expected[i], atol=1e-4)


@wrong_layer.mistake("it looks at shapes alone, and not one of these bugs changes a shape")
def shapes_of_the_layer(MultiHeadAttention):
    query, key, value, mask = _tried()
    output, weights = MultiHeadAttention(12, 3)(query, key, value, mask)
    assert output.shape == query.shape and weights.shape == (2, 3, 4, 5)


@wrong_layer.mistake(
    "it sees that rows of weights sum to 1: few of these bugs break that; look at the output too"
)
def row_sums_of_the_layer(MultiHeadAttention):
    query, key, value, mask = _tried()
    weights = MultiHeadAttention(12, 3)(query, key, value, mask)[1]
    assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 3, 4), atol=1e-5)


@wrong_layer.mistake("it never hands over a mask: all bugs of masking get through")
def no_mask_tried(MultiHeadAttention):
    _compare(MultiHeadAttention, *_tried()[:3], None)


@wrong_layer.mistake("it tries one head, where most bugs of heads are right; try several")
def layer_of_one_head(MultiHeadAttention):
    query, key, value, mask = _tried()
    _compare(MultiHeadAttention, query, key, value, mask[:, :1], num_heads=1)


@wrong_layer.mistake("it has as many heads as columns in a head: division by √num_heads is right")
def square_heads_tried(MultiHeadAttention):
    *inputs, mask = _tried()
    _compare(MultiHeadAttention, *(x[..., :9] for x in inputs), mask)


@wrong_layer.mistake(
    "query, key and value are the same: values made from key get through; hand over three"
)
def self_attention_tried(MultiHeadAttention):
    x, _, _, mask = _tried(L=4, S=4)
    _compare(MultiHeadAttention, x, x, x, mask)


@wrong_layer.mistake("its only mask is causal: code that makes its own causal mask gets through")
def causal_mask_tried(MultiHeadAttention):
    _compare(MultiHeadAttention, *_tried(L=5, S=5, causal=True))


@wrong_layer.mistake("it compares the weights alone: what is done with them afterwards is not seen")
def weights_compared(MultiHeadAttention):
    _compare(MultiHeadAttention, *_tried(), items=(1,))


@wrong_layer.mistake(
    "it compares the output alone: wrong weights may be returned with it; look at both"
)
def outputs_compared(MultiHeadAttention):
    _compare(MultiHeadAttention, *_tried(), items=(0,))


@wrong_layer.mistake("the bias of W_o is 0, as in a new layer it may be: draw it at random")
def zero_bias_tried(MultiHeadAttention):
    _compare(MultiHeadAttention, *_tried(), biases=False)


@wrong_layer.mistake("its mask is the same for all sequences: let it differ in the batch")
def one_mask_for_the_batch(MultiHeadAttention):
    query, key, value, mask = _tried()
    _compare(MultiHeadAttention, query, key, value, mask[:1])


@wrong_layer.mistake(
    "its mask is the same for all heads: 5.3 also takes (B, H, L, S), one for each; let it differ"
)
def one_mask_for_all_heads(MultiHeadAttention):
    query, key, value, mask = _tried()
    _compare(MultiHeadAttention, query, key, value, mask[:, :1])


@wrong_layer.mistake(
    "it changes the future and sees that the past stays: a strong test of masks, and blind to "
    "what is computed from the past; compare with a right layer too"
)
def only_causality_tried(MultiHeadAttention):
    torch.manual_seed(4)
    layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    output = layer(x, x, x, causal_mask(5))[0]
    for t in range(1, 5):
        other = x.clone()
        other[:, t:] += 1
        changed = layer(other, other, other, causal_mask(5))[0]
        assert torch.allclose(changed[:, :t], output[:, :t], atol=1e-4)
