"""Explain an error of a learner's code on one line: the likely cause, the error, and its line."""

import re
import sysconfig
import traceback
from pathlib import Path

import course_utils

# (pattern of the error and its line, likely cause). The first that matches counts.
CAUSES = [
    (
        r"OutOfBounds",
        "An address lies outside the tensor. Check the strides and the head, and whether a mask in "
        "`tl.load` or `tl.store` excludes everything beyond the end.",
    ),
    (
        r"Both operands must be same dtype",
        "`tl.dot` multiplies two blocks of the same dtype. Convert one of them with `.to(...)`.",
    ),
    (
        r"AssertionError: (accumulator|the condition after).* in line \d+, `.*tl\.dot\(",
        "`tl.dot` adds its product to an accumulator, which must have the product's shape and be "
        "in float32.",
    ),
    (
        r"Expected dtype \['fp32'",
        "`tl.exp`, `tl.log` and similar functions take float32, but got a 16-bit block.",
    ),
    (
        r"First input shape|equal reduction dimensions|incompatible for matmul",
        "These blocks cannot be multiplied, because their inner sizes differ. Is a `tl.trans` "
        "missing, or is there one too many?",
    ),
    (
        r"make_shape_compatible|Cannot broadcast|rank mismatch",
        "These blocks cannot be broadcast together. Is a `[:, None]` or `[None, :]` missing, or "
        "is one used in place of the other?",
    ),
    (
        r"arange's",
        "`tl.arange` takes constants, and its length must be a power of 2. Exclude the rest with a "
        "mask.",
    ),
    (
        r"cannot be block type|Expected pointer argument to have shape",
        "Addresses, mask and value must have the same shape. A block of addresses is a pointer "
        "plus a `tl.arange`; `[:, None]` and `[None, :]` give it two dimensions.",
    ),
    (
        r"must be Tensor, not tensor|triton.language.*has no attribute|'tensor' object has no attr|"
        r"for @: 'tensor'",
        "Inside a kernel there are Triton blocks, not PyTorch tensors. Use the functions of `tl`, "
        "such as `tl.exp`, `tl.sum(x, axis=1)`, `tl.dot` or `tl.trans`.",
    ),
    (
        r"cannot add pointers together",
        "A pointer is added to another pointer. An address is one pointer plus an integer offset, "
        "so leave the pointer out of the offset.",
    ),
    (
        r"operands of type pointer",
        "An address must be an integer. Divide with `//` instead of `/`.",
    ),
    (
        r"(size of tensor a|Expected size).* in line \d+, `.*\.T\b",
        "These shapes do not fit together. If a tensor has more than two dimensions, `.T` reverses "
        "all of them. To swap the last two, use `.transpose(-2, -1)`.",
    ),
    (
        r"must be Tensor, not (float|int)",
        "PyTorch's functions take tensors. For a plain number, use `n**0.5`, `math.exp(x)` and so "
        "on.",
    ),
    (r"before Module.__init__", "The first line of `__init__` must be `super().__init__()`."),
    (
        r"expected `attn_mask`|shape of the (2D|3D) attn_mask|attn_mask's dimension",
        "`nn.MultiheadAttention` takes an attn_mask of shape (L, S) or (B·H, L, S). Expand the "
        "mask to (B, H, L, S), then use `.flatten(0, 1)`.",
    ),
    (
        r"tensors used as ind",
        "An index must be an integer or a boolean. `for i in range(len(x))` loops over positions, "
        "but `for i in x` loops over entries. `torch.tensor([])` holds floats, so give it the "
        "dtype `torch.long`.",
    ),
    (
        r"cannot be interpreted as an integer|converted to an index",
        "An integer is needed there. To loop over positions, use `range(len(x))`.",
    ),
    (
        r"for @: ('Tensor' and '(Linear|Sequential)'|'(Linear|Sequential)' and 'Tensor')",
        "A layer is called, as in `self.W_q(x)`, instead of multiplied.",
    ),
    (
        r"must be tuple of Tensors, not Tensor",
        "This function takes its tensors in one list, as in `torch.cat([a, b], dim=-1)`.",
    ),
    (
        r"tuple index out of range",
        "Your code uses a dimension or an item that does not exist. Inputs may come without a "
        "batch.",
    ),
    (r"ModuleNotFoundError", "That library is not installed here. PyTorch alone is enough."),
    (
        r"Dimension out of range|IndexError: too many indices for tensor",
        "Your code names a dimension that these inputs do not have. Count dimensions from the end, "
        "as -1 and -2, and write `...` for those before.",
    ),
    (
        r"mat1 and mat2 shapes|size mismatch, got|Expected size for first two dimensions of batch2",
        "These matrices cannot be multiplied, because their inner sizes differ. Is a transpose "
        "missing, or is there one too many?",
    ),
    (
        r"stack expects each tensor to be equal size",
        "These shapes do not fit together. `torch.stack` takes tensors of one shape.",
    ),
    (
        r"size of tensor a .* must match the size of tensor b|not broadcastable|"
        r"shape .* is invalid for input|could not be broadcast|must have same number of dim|"
        r"Sizes of tensors must match|expects each tensor to be equal size",
        "These shapes do not fit together. Check the dimension that you name, and whether a "
        "`keepdim=True` or a `[..., None]` is missing or not needed.",
    ),
    (
        r"values to unpack.* in line \d+, `.*(shape|size\()",
        "The shape has more or fewer dimensions than you have names for. Inputs and masks may "
        "lack leading dimensions, so use `x.shape[-1]` and `x.shape[-2]`.",
    ),
    (
        r"(not enough|too many) values to unpack",
        "There are more or fewer items to unpack than names. A function may return another number "
        "of results. A tensor is unpacked along its first dimension, and inputs may come with or "
        "without a batch.",
    ),
    (
        r"outer: Expected 1-D|1D tensors expected",
        "`torch.outer` and `torch.dot` take one row at a time. For the rows of a matrix, use "
        "`a[..., :, None] * b[..., None, :]` and `(a * b).sum(dim=-1)`.",
    ),
    (
        # of what it says, because the learner's line may have a `permute(` as well
        r"^((?! in line \d).)*(must be a 3D tensor|batch1|must be a matrix|expects a 2D tensor|"
        r"t\(\) expects a tensor with|only supported on matrices|permute\()",
        "This call takes one fixed number of dimensions, but inputs may have more or fewer. `@` "
        "and `.transpose(-2, -1)` take any.",
    ),
    (
        r"leaf Variable that requires grad is being used in an in-place",
        "PyTorch lets you change a parameter in place only inside `with torch.no_grad():`.",
    ),
    (
        r"einsum\(\)",
        "`einsum` needs a letter for each dimension. Write `...` for any leading ones.",
    ),
    (
        r"view size is not compatible",
        "`.view()` cannot give this tensor that shape without copying, because its entries are not "
        "in order in memory. Use `.reshape()`.",
    ),
    (
        r"torch\.return_types|tuple indices must be integers",
        "`x.max(dim)` and `x.min(dim)` return two things, values and indices. Take `.values`, or "
        "use `x.amax(dim)`. To limit each number, use `x.clamp(min=0)`.",
    ),
    (
        r"Boolean value of Tensor with more than one",
        "`if`, `and`, `or`, `not` and `a < b < c` need a single True or False, but this tensor has "
        "many entries. Use `torch.where`, `torch.maximum`, `&`, `|` or `~`, which work entry by "
        "entry, and put each comparison in parentheses.",
    ),
    (
        r"a Tensor with \d+ elements cannot be converted to Scalar|only one element tensors can be",
        "A tensor with several entries is used where a single number is needed.",
    ),
    (
        r"bitwise_\w+\" not implemented|operator.invert",
        "`&`, `|` and `~` work on boolean masks, not on these numbers.",
    ),
    (
        r"only supports boolean masks|condition to be a boolean tensor",
        "A mask must be boolean, but this one holds numbers. A comparison such as `mask == 0` "
        "gives a boolean mask. Convert with `.bool()` *before* you invert with `~`.",
    ),
    (
        r"shape of the mask .* does not match",
        "A boolean mask must have the same shape as the tensor that it indexes. Is one of the two "
        "missing a slice?",
    ),
    (
        r"[lr]shift\w*\" not implemented",
        "`<<` and `>>` shift the bits of integers, but this tensor holds floating-point numbers. "
        "Convert it first, for example with `.to(torch.int32)`.",
    ),
    (
        r"arg(max|min)\(\): does not support bool",
        "`argmax` and `argmin` do not take booleans. Convert the tensor first, for example with "
        "`.int()`.",
    ),
    (
        r"could not infer output dtype|only support floating point|Expected a floating point|"
        r"not implemented for '(Bool|Int|Long)'",
        "This function does not take integers or booleans. Convert the tensor first, for example "
        "with `.float()`.",
    ),
    (
        r"cannot be converted to type \w+ without overflow",
        "A tensor of integers cannot hold this number, such as −inf. Use an integer that fits, or "
        "convert the tensor to floating point first.",
    ),
    (
        r"slice indices must be integers",
        "The bounds of a slice must be integers. If you divide, use `//` instead of `/`.",
    ),
    (
        r"expected a non-empty list of Tensors|expects a non-empty TensorList",
        "`torch.cat` and `torch.stack` need at least one tensor, but this list is empty. Return "
        "the result for an empty list separately.",
    ),
    (
        r"wrapping around more than once",
        "With mode='circular', `F.pad` can add at most one more copy of the tensor. Repeat the "
        "tensor in another way.",
    ),
    (
        # a dtype in what it says, not in the learner's line
        r"^(?!.*'torch\.dtype' object|.*combination of arguments)((?! in line \d).)*"
        r"(dtype|scalar type|result type .* can't be cast|not implemented for)",
        "This line mixes dtypes. Use the dtype of the inputs, as `x.new_zeros(...)` does.",
    ),
    (
        r"can't convert .* to numpy|Can't call numpy\(\)|ScalarType BFloat16",
        "NumPy cannot read this tensor.",
    ),
    (
        r"(missing \d+ required positional argument|unexpected keyword argument|"
        r"takes (from \d+ to )?\d+ positional arguments? but|combination of arguments)"
        r".* in line \d",
        "The arguments of a call in this line do not fit the function. One is missing, is one too "
        "many, or has a different name or type.",
    ),
    (
        r"missing \d+ required positional argument|unexpected keyword argument|"
        r"takes (from \d+ to )?\d+ positional arguments? but",
        "Your function does not take the exercise's arguments. Keep the line with `def` as it was. "
        "It may have more arguments than the lesson's code.",
    ),
    (
        r"UnboundLocalError|cannot access local variable",
        "A name is used before it has a value. Is it set only in a branch that did not run?",
    ),
    (
        r"NameError",
        "Your code uses a name that does not exist. Is it misspelled, is an import missing, or was "
        "a cell not run?",
    ),
    (
        r"'generator' object is not subscriptable|type 'generator' has no len",
        "A generator has no index and no length. Loop over it with `for`.",
    ),
    (r"is not subscriptable|NoneType", "Your code uses None here as if it were a value."),
    (r"maximum recursion depth", "Your function calls itself without end."),
    (
        r"index .* is out of bounds|list index out of range|index out of range",
        "An index is out of range.",
    ),
]
# As in "invalid syntax (1837172001.py, line 2)": IPython's name for a cell says nothing.
_NAME_OF_A_CELL = re.compile(r"\((?:\d+\.py|<ipython-input[^>]*>), (?=line \d)")
_LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]


def on_one_line(text, longest):
    """Return a text without line breaks, cut where it is longer than that."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def summarize(error):
    """Return the type and the message of an error, on one line."""
    kinds = type(error).__mro__  # Python's _IncompleteInputError is a SyntaxError
    kind = next(each.__name__ for each in kinds if not each.__name__.startswith("_"))
    try:
        text = on_one_line(_NAME_OF_A_CELL.sub("(", str(error)), 200)
    except Exception:  # a learner's class may fail even here
        text = ""
    if not text and isinstance(error, AssertionError):
        text = "the condition after `assert` is False"
    return f"{kind}: {text}" if text else kind


def explained(error):
    """Return the likely cause of an error, if it is a known one, then the error and its line."""
    text = f"{summarize(error)}{_where(error)}"
    cause = next((cause for pattern, cause in CAUSES if re.search(pattern, text)), None)
    raised = f"Your code raised {text}"
    return f"{cause} {raised}" if cause else raised


def _where(error):
    """Return " in line 3, `…`", the innermost line of the learner's code; "" if there is none."""
    if hasattr(error, "elsewhere"):  # raised in a student's process
        return error.elsewhere["where"]
    frames = traceback.extract_tb(error.__traceback__)
    learners = [frame for frame in frames if is_learners_file(frame.filename)]
    if not learners or not learners[-1].line:
        return ""
    return f" in line {learners[-1].lineno}, `{on_one_line(learners[-1].line, 80)}`"


def is_learners_file(filename):
    """Tell whether a file is neither of the course, nor of Python or a package."""
    return not (is_ours(filename) or filename.startswith(("<frozen", *_LIBRARIES)))


def is_ours(filename):
    """Tell whether a file is in course_utils, or a check that runs beside a student's answer."""
    course = Path(course_utils.__file__).parent
    return filename.startswith("<check ") or course in Path(filename).parents
