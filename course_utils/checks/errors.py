"""Explain an error of a learner's code on one line: the likely cause, the error, and its line."""

import re
import sysconfig
import traceback
from pathlib import Path

# (pattern of the error and its line, likely cause). The first that matches counts.
CAUSES = [
    (
        r"OutOfBounds",
        "an address leads out of the tensor: does a mask in tl.load or tl.store leave out what "
        "lies beyond the end, and are strides and heads the right ones?",
    ),
    (
        r"Both operands must be same dtype",
        "tl.dot multiplies two blocks of one dtype: round one with .to(...) to that of the other",
    ),
    (
        r"AssertionError.* in line \d+, `.*tl\.dot\(",
        "tl.dot adds its product to an accumulator of the same shape, in float32",
    ),
    (
        r"Expected dtype \['fp32'",
        "tl.exp, tl.log and their like take float32: something was rounded to 16 bits before",
    ),
    (
        r"First input shape|incompatible for matmul",
        "these blocks cannot be multiplied: inner sizes must agree; is a tl.trans missing, or one "
        "too many?",
    ),
    (
        r"make_shape_compatible|Cannot broadcast|rank mismatch",
        "these blocks do not fit together: is a [:, None] or a [None, :] missing, or is it the "
        "other one?",
    ),
    (
        r"arange's",
        "tl.arange takes constants, and a power of 2 as its length: leave out the rest by a mask",
    ),
    (
        r"cannot be block type|Expected pointer argument to have shape",
        "addresses, mask and value must have one shape: a block of addresses is a pointer plus "
        "tl.arange, [:, None] and [None, :] give it two dimensions",
    ),
    (
        r"must be Tensor, not tensor|triton.language.*has no attribute|'tensor' object has no attr|"
        r"for @: 'tensor'",
        "inside a kernel there are blocks, not PyTorch's tensors, and only what tl has works on "
        "them: tl.exp, tl.sum(x, axis=1), tl.dot, tl.trans ...",
    ),
    (
        r"operands of type pointer",
        "an address must be an integer: divide by //, not by /",
    ),
    (
        r"(size of tensor a|mat1|Expected size).* in line \d+, `.*\.T\b",
        "these shapes do not fit together: is there one transpose too many, or too few? .T "
        "reverses all dimensions, even those of a batch; .transpose(-2, -1) exchanges the last two",
    ),
    (
        r"must be Tensor, not (float|int)",
        "torch's functions take tensors; a plain number has its own: n ** 0.5, math.exp(x) ...",
    ),
    (r"before Module.__init__", "the first line of __init__ must be super().__init__()"),
    (
        r"expected `attn_mask`|shape of the (2D|3D) attn_mask|attn_mask's dimension",
        "nn.MultiheadAttention takes an attn_mask (L, S) or (B·H, L, S): expand the mask to "
        "(B, H, L, S), then .flatten(0, 1)",
    ),
    (
        r"tensors used as ind",
        "an index must be an integer or a boolean: `for i in range(len(x))` loops over positions, "
        "`for i in x` over the entries; torch.tensor([]) holds floats, so give it the dtype "
        "torch.long",
    ),
    (
        r"cannot be interpreted as an integer|converted to an index",
        "an integer is needed there: range(len(x)), or range(x.shape[0]), loops over positions",
    ),
    (
        r"for @: ('Tensor' and '(Linear|Sequential)'|'(Linear|Sequential)' and 'Tensor')",
        "a layer is called, self.W_q(x), not multiplied",
    ),
    (
        r"must be tuple of Tensors, not Tensor",
        "it takes its tensors in one list: torch.cat([a, b], dim=-1)",
    ),
    (
        r"tuple index out of range",
        "it asks for more dimensions, or items, than there are: inputs may come without a batch",
    ),
    (r"ModuleNotFoundError", "that library is not installed here; PyTorch alone will do"),
    (
        r"Dimension out of range|IndexError: too many indices for tensor",
        "it names a dimension that these inputs do not have: count from the end, -1 and -2, and "
        "let `...` stand for the ones before",
    ),
    (
        r"mat1 and mat2 shapes|size mismatch, got|Expected size for first two dimensions of batch2",
        "these matrices cannot be multiplied: inner sizes must agree; is a transpose missing, or "
        "one too many?",
    ),
    (
        r"size of tensor a .* must match the size of tensor b|not broadcastable|"
        r"shape .* is invalid for input|could not be broadcast|must have same number of dim|"
        r"Sizes of tensors must match|expects each tensor to be equal size",
        "these shapes do not fit together: is a keepdim=True or a [..., None] missing, or is there "
        "one too many, or another dimension meant?",
    ),
    (
        r"values to unpack.* in line \d+, `.*(shape|size\()",
        "the sizes are unpacked into another number of names than there are dimensions: inputs "
        "may come with or without a batch; take x.shape[-1] and x.shape[-2]",
    ),
    (
        r"(not enough|too many) values to unpack",
        "there are more or fewer things to unpack than names: a tensor is unpacked along its first "
        "dimension, and .split or .chunk cut along another; a tuple may hold one, two or many "
        "items, so loop over them; inputs may come with or without a batch",
    ),
    (
        r"must be a 3D tensor|batch1|must be a matrix|expects a 2D tensor|"
        r"t\(\) expects a tensor with|only supported on matrices|permute\(",
        "it works for one number of dimensions only, and inputs may have more or fewer; @ and "
        ".transpose(-2, -1) take any",
    ),
    (
        r"einsum\(\)",
        "einsum needs a letter for each dimension; `...` stands for any leading ones",
    ),
    (
        r"view size is not compatible",
        ".view() needs the numbers in order in memory, and these are not: use .reshape()",
    ),
    (
        r"torch\.return_types|tuple indices must be integers",
        "x.max(dim) and x.min(dim) give two things, values and indices: take .values, or "
        "x.amax(dim); what limits each number is x.clamp(min=0)",
    ),
    (
        r"Boolean value of Tensor with more than one",
        "`if`, `and`, `or` and `not` ask a whole tensor for one yes or no, and so does a < b < c: "
        "use torch.where, torch.maximum, &, | and ~, which work entry by entry, and put each "
        "comparison in parentheses",
    ),
    (
        r"a Tensor with \d+ elements cannot be converted to Scalar|only one element tensors can be",
        "a tensor of several numbers is used where one is needed",
    ),
    (
        r"bitwise_\w+\" not implemented|operator.invert",
        "&, | and ~ work on masks of true and false, not on such numbers",
    ),
    (
        # a dtype in what it says, not in the learner's line
        r"^(?!.*'torch\.dtype' object|.*combination of arguments)((?! in line \d).)*"
        r"(dtype|scalar type|result type .* can't be cast|not implemented for)",
        "it mixes dtypes: use the dtype of the inputs, as x.new_zeros(...) does",
    ),
    (
        r"can't convert .* to numpy|Can't call numpy\(\)|ScalarType BFloat16",
        "NumPy does not take such tensors",
    ),
    (
        r"(missing \d+ required positional argument|unexpected keyword argument|"
        r"takes (from \d+ to )?\d+ positional arguments? but|combination of arguments)"
        r".* in line \d",
        "a call in this line does not fit the function: an argument is missing, or there is one "
        "too many, or one has another name or type",
    ),
    (
        r"missing \d+ required positional argument|unexpected keyword argument|"
        r"takes (from \d+ to )?\d+ positional arguments? but",
        "its arguments are not those of the exercise, which may ask for more than the lesson's "
        "code: keep the line with `def` as it was",
    ),
    (
        r"UnboundLocalError|cannot access local variable",
        "a name is used before it has a value: is it set only in a branch that was not taken?",
    ),
    (
        r"NameError",
        "a name is used that does not exist: is it misspelled, is an import missing, or was a "
        "cell not run?",
    ),
    (
        r"'generator' object is not subscriptable|type 'generator' has no len",
        "a generator has no [0] and no length: loop over it with `for`",
    ),
    (r"is not subscriptable|NoneType", "something is None that should hold a value"),
    (r"maximum recursion depth", "it calls itself without end"),
    (
        r"index .* is out of bounds|list index out of range|index out of range",
        "an index is too large",
    ),
]
_LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]


def on_one_line(text, longest):
    """Return a text without line breaks, cut where it is longer than that."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def summarize(error):
    """Return the type and the message of an error, on one line."""
    kind = type(error).__name__
    try:
        text = on_one_line(str(error), 200)
    except Exception:  # a learner's class may fail even here
        text = ""
    if not text and isinstance(error, AssertionError):
        text = "the condition after `assert` is not true"
    return f"{kind}: {text}" if text else kind


def explained(error):
    """Return the likely cause of an error, if it is a known one, then the error and its line."""
    text = f"{summarize(error)}{_where(error)}"
    cause = next((cause for pattern, cause in CAUSES if re.search(pattern, text)), None)
    raised = f"it raised {text}"
    return f"{cause}; {raised}" if cause else raised


def _where(error):
    """Return " in line 3, `…`", the innermost line of the learner's code; "" if there is none."""
    if hasattr(error, "elsewhere"):  # raised in a student's process
        return error.elsewhere["where"]
    frames = traceback.extract_tb(error.__traceback__)
    learners = [frame for frame in frames if _is_learners(frame.filename)]
    if not learners or not learners[-1].line:
        return ""
    return f" in line {learners[-1].lineno}, `{on_one_line(learners[-1].line, 80)}`"


def _is_learners(filename):
    if filename.startswith(("<frozen", *_LIBRARIES)):
        return False
    return Path(__file__).parents[1] not in Path(filename).parents  # course_utils
