"""Layers whose parameters are laid out freely: which fit, and what is said of the others."""

import pytest
import torch
from torch import nn

from course_utils.checks.exercise import NO_FIT, NamedMistake
from course_utils.checks.submission_layer import layer_outputs, parameter_layouts

NORMAL = torch.Generator().manual_seed(0)
NAMES = ("W_q", "W_k", "W_v", "W_o")
HEADS = {name: torch.randn(2, 3, 6, generator=NORMAL) for name in NAMES}  # H, d_k, d_model


def layer(**parameters):
    """Return a module with these parameters, each given by its shape, or layers."""
    module = nn.Module()
    for name, shape in parameters.items():
        made = shape if isinstance(shape, nn.Module) else nn.Parameter(torch.randn(shape))
        setattr(module, name, made)
    return module


def named(shape, of_output=None):
    return {name: of_output or shape if name == "W_o" else shape for name in NAMES}


ROLES = {  # names that learners use, for an nn.Linear each
    "W_q": "q Wq w_qs to_q query W_query q_proj query_layer queries linear_q fc_queries qProj",
    "W_k": "k Wk to_k key W_key key_proj k_projection keys linear_k mat_k kProj",
    "W_v": "v Wv to_v value values v_layer vals v_proj linear_v",
    "W_o": "o os Wo to_out out out_proj output output_layer fc",
}


@pytest.mark.parametrize("role, names", ROLES.items(), ids=ROLES)
def test_a_role_is_taken_from_the_name_whatever_the_order(role, names):
    others = {name: nn.Linear(6, 6) for name in reversed(NAMES) if name != role}
    for name in names.split():
        module = layer(**others, **{name: nn.Linear(6, 6)})
        assert next(parameter_layouts(module, HEADS))
        wanted = HEADS[role].flatten(0, 1)
        assert getattr(module, name).weight.equal(wanted.T if role == "W_o" else wanted), name


# Each with where it holds column 2 of head 1 for input 5 of W_q, and the same of W_o for output 5.
IN, OUT = HEADS["W_q"][1, 2, 5], HEADS["W_o"][1, 2, 5]
BARE = {
    "(in, out)": (named((6, 6)), lambda m: (m.W_q[5, 5], m.W_o[5, 5])),
    "heads first": (named((2, 6, 3), (2, 3, 6)), lambda m: (m.W_q[1, 5, 2], m.W_o[1, 2, 5])),
    "(out, in)": (named((2, 3, 6), (2, 6, 3)), lambda m: (m.W_q[1, 2, 5], m.W_o[1, 5, 2])),
    "heads last": (named((6, 3, 2), (3, 2, 6)), lambda m: (m.W_q[5, 2, 1], m.W_o[2, 1, 5])),
    "one for three": (
        {"qkv": (3, 2, 6, 3), "out": (2, 3, 6)},
        lambda m: (m.qkv[0, 1, 5, 2], m.out[1, 2, 5]),
    ),
    "all in one": ({"all": (4, 6, 6)}, lambda m: (m.all[0, 5, 5], m.all[3, 5, 5])),
    "all in one, stacked behind the heads": (
        {"all": (2, 4, 6, 3)},
        lambda m: (m.all[1, 0, 5, 2], m.all[1, 3, 5, 2]),
    ),
}


@pytest.mark.parametrize("parameters, entries", BARE.values(), ids=BARE)
def test_bare_parameters_are_filled_in_their_layout(parameters, entries):
    module = layer(**parameters)
    assert any(fits and entries(module) == (IN, OUT) for fits in parameter_layouts(module, HEADS))


@pytest.mark.parametrize("axes", "khd hkd hdk dkh dhk".split())  # of q, k, v; heads; columns
def test_a_fused_layer_is_read_however_its_rows_are_laid_out(axes):
    heads = {name: torch.randn(2, 4, 8) for name in HEADS}
    module = layer(qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))
    sizes = [{"k": 3, "h": 2, "d": 4}[axis] for axis in axes]
    wanted = torch.stack([heads[name] for name in ("W_q", "W_k", "W_v")])
    assert any(
        fits and torch.einsum(f"{axes}m->khdm", module.qkv.weight.unflatten(0, sizes)).equal(wanted)
        for fits in parameter_layouts(module, heads)
    )


def test_names_that_mean_something_else_decide_nothing():
    module = layer(first=(6, 6), k=nn.Linear(6, 18))  # k for a kernel of all three
    assert sum(parameter_layouts(module, HEADS)) > 1
    inner = layer(**{name: nn.Linear(6, 6) for name in NAMES})
    assert list(parameter_layouts(layer(value=inner), HEADS)) == [True]  # the innermost name counts


def test_a_linear_layer_is_not_read_transposed():
    heads = {name: each[:1] for name, each in HEADS.items()}
    right = {name: nn.Linear(6, 3) for name in NAMES} | {"W_o": nn.Linear(3, 6)}
    assert list(parameter_layouts(layer(**right), heads)) == [True]
    for wrong in ({"W_k": nn.Linear(3, 6)}, {"W_o": nn.Linear(6, 3)}):
        assert list(parameter_layouts(layer(**right | wrong), heads)) == [False]


def test_biases_become_0_and_scales_stay():
    biases = {"b_extra": (2, 3), "shift": (1, 1, 6), "offset_b": (40,), "of_three": (3, 1, 2, 3)}
    linear = {name: nn.Linear(6, 6) for name in NAMES}
    module = layer(**linear, **biases, norm=nn.LayerNorm(6), scale=())
    module.gain = nn.Parameter(torch.full((1, 6), 2.0))
    scale = module.scale.item()
    assert next(parameter_layouts(module, HEADS))
    assert not any(getattr(module, name).any() for name in biases) and not module.W_q.bias.any()
    assert module.scale.item() == scale != 0
    assert (module.gain == 2).all() and (module.norm.weight == 1).all()


class Sums(nn.Module):
    """Adds up its matrices, which it has in the order q, k, v, o and without telling names."""

    def __init__(self, *shapes):
        super().__init__()
        self.layers = nn.ParameterList(torch.ones(shape) for shape in shapes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x + sum(each.sum() for each in self.layers))


def test_layouts_have_the_same_numbers_for_all_sizes_and_a_layer_is_not_in_training():
    def ones(d_k, d_v, width):
        return {name: torch.ones(1, d_v if name in "W_v W_o" else d_k, width) for name in NAMES}

    x = torch.zeros(50)
    outputs = layer_outputs(Sums((4, 6), (4, 6), (3, 6), (6, 3)), ones(4, 3, 6), x)
    fitting = [output for output in outputs if output is not NO_FIT]
    assert 0 < len(fitting) < len(outputs)
    assert all((output == 84).all() for output in fitting)
    square = layer_outputs(Sums(*[(6, 6)] * 4), ones(6, 6, 6), x)
    assert NO_FIT not in square and len(square) == len(outputs)


# What is said of layers that cannot be judged


def with_list(*items):
    module = nn.Module()
    module.layers, module.out = [*items], nn.Linear(6, 6)
    return module


def with_plain_tensor():
    module = layer(W_k=(6, 6), W_v=(6, 6), W_o=(6, 6))
    module.W_q = torch.randn(6, 6)
    return module


TIED = nn.Linear(6, 6)
ONE_HEAD = {name: each[:1] for name, each in HEADS.items()}


@pytest.mark.parametrize(
    "module, heads, words",
    [
        (layer(), HEADS, "found none, 0 entries. These are too few"),
        (
            layer(**named((6, 6)), more=(6, 6)),
            HEADS,
            "found (6, 6) × 5, 180 entries. These are too many",
        ),
        (layer(W_q=(6, 6), W_o=(6, 6)), HEADS, "found (6, 6) × 2, 72 entries. These are too few"),
        (layer(**named((6, 6)) | {"W_q": (6, 3)}), HEADS, "W_o as well, wide enough for all heads"),
        (layer(**named((6, 6)) | {"W_q": (4, 9)}), HEADS, "needs all d_model = 6 columns"),
        (with_list(nn.Linear(6, 6)), HEADS, "nn.ModuleList"),
        (with_list("x", nn.Parameter(torch.ones(6))), HEADS, "nn.ParameterList"),
        (with_plain_tensor(), HEADS, "self.W_q = nn.Parameter(...)"),
        (layer(W_q=TIED, W_k=TIED, W_o=(6, 6)), HEADS, "One matrix has two names"),
        (layer(a=(12, 6), b=(12, 6)), HEADS, "order are unknown"),
        (layer(**named((6, 5), (5, 6))), ONE_HEAD, "One matrix is too wide"),
        (layer(**named((6, 2), (2, 6))), ONE_HEAD, "W_o as well, wide enough"),
        (layer(**named((6, 2), (2, 6))), ONE_HEAD, "W_v (3, 6), W_o (6, 3) as `nn.Linear`"),
    ],
)
def test_why_parameters_do_not_fit(module, heads, words):
    with pytest.raises(NamedMistake) as raised:
        layer_outputs(module, heads)
    assert raised.value.mistake == "unexpected parameters"
    assert words in raised.value.hint


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        return nn.functional.dropout(x, 0.1)


def test_an_output_that_depends_on_chance_is_refused():
    with pytest.raises(NamedMistake, match="layer.eval"):
        layer_outputs(Dropped(), HEADS, torch.ones(6))


class LazyAndFailing(nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.lazy = nn.LazyLinear(6)

    def forward(self, *_):
        raise KeyError("before the layer was used")


def test_an_error_of_a_lazy_layer_is_the_layers():
    with pytest.raises(KeyError, match="before the layer was used"):
        layer_outputs(LazyAndFailing(), HEADS, torch.ones(6))
