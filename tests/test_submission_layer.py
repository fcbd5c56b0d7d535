"""Layers whose parameters are laid out freely: which are read, and what is said of the others."""

import pytest
import torch
from torch import nn

from course_utils import check
from course_utils.checks.exercise import NO_FIT, Complaint
from course_utils.checks.gradients import gradients
from course_utils.checks.submission_layer import _role, layer_outputs, readings

H, D_K, D_MODEL = 2, 3, 6
NORMAL = torch.Generator().manual_seed(0)
HEADS = {
    name: torch.randn(H, D_K, D_MODEL, generator=NORMAL) for name in ("W_q", "W_k", "W_v", "W_o")
}
NAMES = {
    "W_q": "q W_q Wq w_q WQ to_q query W_query q_proj q_linear query_layer queries.q qw w_qs "
    "queries linear_q fc_queries",
    "W_k": "k W_k Wk to_k key W_key key_proj k_projection block.k keys W_keys linear_k mat_k kProj",
    "W_v": "v W_v Wv to_v value values.v v_layer vals",
    "W_o": "o W_o Wo to_out out out_proj output output_layer",
    None: "qkv to_qkv in_proj proj linear layers 0 w weight kernel c_attn fc dense",
}


@pytest.mark.parametrize(
    "name, role", [(name, role) for role, names in NAMES.items() for name in names.split()]
)
def test_a_role_is_taken_from_the_name(name, role):
    assert _role(name.split(".")[-1]) == role


def layer(**parameters):
    """Return a module with these parameters, a shape in place of each."""
    module = nn.Module()
    for name, shape in parameters.items():
        made = shape if isinstance(shape, nn.Module) else nn.Parameter(torch.randn(shape))
        setattr(module, name, made)
    return module


def named(shape, of_output=None):
    return {f"W_{role}": of_output if role == "o" and of_output else shape for role in "qkvo"}


# Each with where it keeps the first query entry of head 1, column 2, for input 5, once loaded, and
# the entry of W_o for the same column and output 5.
IN, OUT = HEADS["W_q"][1, 2, 5], HEADS["W_o"][1, 2, 5]
BARE = {
    "(in, out)": (named((6, 6)), lambda m: (m.W_q[5, 5], m.W_o[5, 5])),
    "heads first": (named((2, 6, 3), (2, 3, 6)), lambda m: (m.W_q[1, 5, 2], m.W_o[1, 2, 5])),
    "heads first, turned": (
        named((2, 3, 6), (2, 6, 3)),
        lambda m: (m.W_q[1, 2, 5], m.W_o[1, 5, 2]),
    ),
    "heads inside": (named((6, 2, 3), (2, 3, 6)), lambda m: (m.W_q[5, 1, 2], m.W_o[1, 2, 5])),
    "one for three": (
        {"qkv": (3, 2, 6, 3), "out": (2, 3, 6)},
        lambda m: (m.qkv[0, 1, 5, 2], m.out[1, 2, 5]),
    ),
    "heads last": (named((6, 3, 2), (3, 2, 6)), lambda m: (m.W_q[5, 2, 1], m.W_o[2, 1, 5])),
    "three inside": (
        {"kernel": (6, 3, 2, 3), "out": (6, 6)},
        lambda m: (m.kernel[5, 0, 1, 2], m.out[5, 5]),
    ),
    "stacked": ({"all": (4, 6, 6)}, lambda m: (m.all[0, 5, 5], m.all[3, 5, 5])),
    "stacked heads": (
        {"all": (4, 2, 6, 3)},
        lambda m: (m.all[0, 1, 5, 2], m.all[3, 1, 5, 2]),
    ),
}


@pytest.mark.parametrize("parameters, entries", BARE.values(), ids=BARE)
def test_bare_parameters_are_filled_in_their_own_layout(parameters, entries):
    module = layer(**parameters)
    for fits in readings(module, HEADS):
        assert fits
        entry = entries(module)
        assert tuple(entry) == (IN, OUT)
        break


def test_all_four_may_be_stacked_behind_the_heads():
    module = layer(all=(2, 4, 6, 3))
    fitting = []
    for fits in readings(module, HEADS):
        fitting += [(module.all[1, 0, 5, 2].item(), module.all[1, 3, 5, 2].item())] if fits else []
    assert fitting[0] == (IN, OUT)


def test_readings_are_the_same_for_all_sizes():
    stacked = torch.zeros(4, 2, 6, 3), torch.zeros(4, 4, 8, 2)
    counts = [
        len(list(readings(layer(all=each.shape), dict.fromkeys(HEADS, each[0].mT))))
        for each in stacked
    ]
    assert counts[0] == counts[1]
    for parameters in ({"a": (5, 4), "b": (5, 4), "c": (5, 3), "d": (3, 5)}, {"a": (5, 11)}):
        wide = {"W_q": (1, 4, 5), "W_k": (1, 4, 5), "W_v": (1, 3, 5), "W_o": (1, 3, 5)}
        same = dict.fromkeys(wide, (1, 5, 5))
        counts = [
            len(list(readings(layer(**parameters), {n: torch.randn(s) for n, s in heads.items()})))
            for heads in (wide, same)
        ]
        assert counts[0] == counts[1] > 1


def test_only_what_was_drawn_at_random_is_set_to_0():
    module = layer(
        **{name: nn.Linear(6, 6) for name in HEADS},
        b_extra=(2, 3),
        b_qkv=(3, 6),
        shift=(1, 1, 6),
        offset_b=(40,),
        shift_of_three=(3, 1, 2, 3),
        norm=nn.LayerNorm(6),
        scale=(),
    )
    module.gain = nn.Parameter(torch.full((1, 6), 2.0))
    before = module.scale.item()
    assert next(readings(module, HEADS))
    for bias in (
        module.b_extra,
        module.b_qkv,
        module.shift,
        module.offset_b,
        module.W_q.bias,
        module.shift_of_three,
    ):
        assert not bias.any()
    assert module.scale.item() == before != 0
    assert (module.gain == 2).all() and (module.norm.weight == 1).all()


def misfit(**parameters):
    with pytest.raises(Complaint) as raised:
        layer_outputs(layer(**parameters), HEADS)
    assert raised.value.mistake == "unexpected parameters"
    return raised.value.hint


def in_a_list(items):
    module = nn.Module()
    module.layers, module.out = items, nn.Linear(6, 6)
    return module


tied = nn.Linear(6, 6)


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({}, "144 entries in all; found none, 0 entries; too few: assign each to self"),
        (named((6, 6)) | {"more": (6, 6)}, "found (6, 6) × 5, 180 entries; too many: a query"),
        ({"W_q": (6, 6), "W_o": (6, 6)}, "found (6, 6) × 2, 72 entries; too few"),
        (named((6, 6)) | {"W_q": (6, 3)}, "W_o too, wide enough for all heads"),
        (named((6, 6)) | {"W_q": (4, 9)}, "each head needs all d_model = 6 columns: project first"),
        ({"q": nn.Linear(2, 2), "o": (6, 6)}, "found (6, 6), (2, 2), 40 entries; each head needs"),
        ({"inner": in_a_list([nn.Linear(6, 6)])}, "use nn.ModuleList, nn.ParameterList"),
        ({"inner": in_a_list(["x", nn.Parameter(torch.ones(6))])}, "use nn.ModuleList"),
        ({"inner": in_a_list(["x"])}, "too few"),
        (
            {"W_q": tied, "W_k": tied, "W_o": (6, 6)},
            "one matrix has two names, as after self.W_k",
        ),
        ({"a": (12, 6), "b": (12, 6)}, "in shapes or an order not read here: nn.Linear each"),
    ],
)
def test_parameters_that_do_not_fit_are_told_why(parameters, words):
    assert words in misfit(**parameters)


def test_a_plain_tensor_is_told():
    module = layer(W_k=(6, 6), W_v=(6, 6), W_o=(6, 6))
    module.W_q = torch.randn(6, 6)
    with pytest.raises(Complaint, match="a plain tensor on self does not learn"):
        layer_outputs(module, HEADS)


FUSED = "khd hkd hdk dkh dhk"  # axes of q, k, v; of heads; of columns


@pytest.mark.parametrize("axes", FUSED.split())
def test_a_fused_layer_is_read_however_its_rows_are_laid_out(axes):
    heads = {name: torch.randn(2, 4, 8) for name in HEADS}
    module = layer(qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))
    sizes = [{"k": 3, "h": 2, "d": 4}[axis] for axis in axes]
    found = [
        torch.einsum(f"{axes}m->khdm", module.qkv.weight.unflatten(0, sizes)).clone()
        for fits in readings(module, heads)
        if fits
    ]
    wanted = torch.stack([heads[name] for name in ("W_q", "W_k", "W_v")])
    assert any(each.equal(wanted) for each in found)


def test_a_name_that_means_something_else_is_no_verdict():
    module = layer(first=(6, 6), k=nn.Linear(6, 18))  # k for a kernel of all three
    assert sum(readings(module, HEADS)) > 1
    module = layer(fc=nn.Linear(6, 6), q=(6, 6), k=(6, 6), v=(6, 6))
    assert next(readings(module, HEADS)) and module.q.data[5, 5] == IN  # fc is W_o


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        return nn.functional.dropout(x, 0.1)


def test_what_depends_on_chance_is_told():
    with pytest.raises(Complaint, match="also after layer.eval"):
        layer_outputs(Dropped(), HEADS, torch.ones(6))


def test_gradients_are_those_of_the_reading_that_is_asked():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(1, 1, bias=False) for _ in range(4))

        def forward(self, x):
            return self.d(self.a(x) + self.b(x) ** 2 + self.c(x) ** 3)

    heads = {name: torch.full((1, 1, 1), n + 1.0) for n, name in enumerate(HEADS)}
    found = [gradients(run_product, Product, (torch.ones(1), heads), place)[0] for place in (0, 2)]
    assert found[0] != found[1]


def run_product(answer, x, heads):
    return layer_outputs(answer(), heads, x)


def test_a_linear_layer_is_not_read_the_other_way_round():
    heads = {name: each[:1] for name, each in HEADS.items()}
    right = {name: nn.Linear(6, 3) for name in HEADS} | {"W_o": nn.Linear(3, 6)}
    assert list(readings(layer(**right), heads)) == [True]
    assert list(readings(layer(**right | {"W_k": nn.Linear(3, 6)}), heads)) == [False]
    assert list(readings(layer(**right | {"W_o": nn.Linear(6, 3)}), heads)) == [False]


def test_the_innermost_name_tells_the_role():
    inner = layer(**{name: nn.Linear(6, 6) for name in HEADS})
    assert list(readings(layer(value=inner), HEADS)) == [True]


def test_parameters_that_do_not_fit_are_told_for_one_head():
    heads = {name: each[:1] for name, each in HEADS.items()}
    for parameters, words in [
        (named((6, 5), (5, 6)), "too many: one is wider than it should be"),
        (named((6, 2), (2, 6)), "W_o too, wide enough"),
        (named((6, 3), (3, 3)), "W_o too, wide enough"),
    ]:
        with pytest.raises(Complaint) as raised:
            layer_outputs(layer(**parameters), heads)
        assert raised.value.hint.endswith(words)
        assert "W_q (3, 6), W_k (3, 6), W_v (3, 6), W_o (6, 3) as nn.Linear" in raised.value.hint


class Sums(nn.Module):
    """Adds up its matrices, which it has in the order o, q, k, v and without telling names."""

    def __init__(self, *shapes):
        super().__init__()
        self.layers = nn.ParameterList(torch.ones(shape) for shape in shapes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x + sum(each.sum() for each in self.layers))


def test_places_mean_the_same_readings_and_a_layer_is_not_in_training():
    heads = {
        name: torch.ones(1, *size)
        for name, size in {"W_q": (4, 6), "W_k": (4, 6), "W_v": (3, 6), "W_o": (3, 6)}.items()
    }
    x = torch.zeros(50)
    found = layer_outputs(Sums((4, 6), (4, 6), (3, 6), (6, 3)), heads, x)
    fits = [each for each in found if each is not NO_FIT]
    assert 0 < len(fits) < len(found)
    assert all((each == 84).all() for each in fits)
    square = {name: torch.ones(1, 6, 6) for name in heads}
    assert NO_FIT not in layer_outputs(Sums(*[(6, 6)] * 4), square, x)


class NotRun(nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.lazy = nn.LazyLinear(6)

    def forward(self, *_):
        raise KeyError("before the layer was used")


def test_a_lazy_layer_that_fails_is_told_its_own_error():
    verdict = check(NotRun, "MultiHeadAttention")
    assert verdict.status == "wrong" and "KeyError: 'before the layer was used'" in verdict.message
