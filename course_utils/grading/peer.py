"""Two processes call each other's functions: a student's, and the one that grades.

Arguments and results travel as plain data and tensors, and gradients flow through a call. Nothing
that comes from the other side is ever unpickled as an object or run as code.
"""

import builtins
import io
import os
import random
import select
import struct
import time
import traceback

import numpy as np
import torch

LARGEST = 64 << 20  # bytes of one message
NUMBERS = bool, int, float, complex, str


class Lost(BaseException):
    """The other process has ended, takes too long, or sends what cannot be read."""


class Peer:
    """One end of two pipes: it calls the other side's functions, and answers calls to its own.

    Parameters
    ----------
    reader, writer : int
        File descriptors.

    Attributes
    ----------
    objects : list of callable
        The functions that the other side may call, by their number. Functions among the arguments
        and results of calls are added.
    """

    def __init__(self, reader, writer):
        self.reader, self.writer, self.objects = reader, writer, []
        self.graphs, self.deadline = [], None
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)

    def lost(self, reason):
        """Return the exception to raise where the other process is of no more use."""
        return Lost(reason)

    def send(self, verb, content=None):
        buffer = io.BytesIO()
        torch.save((verb, content), buffer)
        data = memoryview(struct.pack("<Q", buffer.tell()) + buffer.getvalue())
        while data:
            self._await([], [self.writer])
            try:
                data = data[os.write(self.writer, data) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self.lost("ended") from None

    def receive(self):
        (size,) = struct.unpack("<Q", self._read(8))
        if size > LARGEST:
            raise self.lost("unreadable")
        data = io.BytesIO(self._read(size))
        try:
            verb, content = torch.load(data, weights_only=True, map_location="cpu")
        except Exception:
            raise self.lost("unreadable") from None
        return verb, content

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            self._await([self.reader], [])
            try:
                part = os.read(self.reader, min(size - len(data), 1 << 20))
            except BlockingIOError:
                continue
            if not part:
                raise self.lost("ended")
            data += part
        return bytes(data)

    def _await(self, reading, writing):
        left = None if self.deadline is None else max(0, self.deadline - time.monotonic())
        if not any(select.select(reading, writing, [], left)):
            raise self.lost("waits")

    def ask(self, verb, content=None):
        """Send a request and return the reply; meanwhile, answer the other side's requests."""
        self.send(verb, content)
        return self.wait()

    def wait(self):
        while True:
            verb, content = self.receive()
            if verb == "value":
                return content
            if verb == "error":
                raise self.rebuilt(content)
            self.answer(verb, content)

    def answer(self, verb, content):
        """Answer one request of the other side."""
        try:
            reply = {"call": self._called, "backward": self._backward}[verb](content)
        except Lost:
            raise
        except (Exception, SystemExit) as error:
            self.send("error", described(error, self))
        else:
            self.send("value", reply)

    def call(self, number, args, kwargs=None):
        """Call a function of the other side, also in the graph of gradients."""
        ours, before = [], len(self.objects)
        packed = self.pack((list(args), kwargs or {}), ours)
        traced = [each.requires_grad for each in ours]
        content = {"function": number, "packed": packed, "traced": traced}
        content["seed"] = torch.initial_seed()
        content |= {"tensors": [each.detach() for each in ours], "grad": torch.is_grad_enabled()}
        reply = self.ask("call", content)
        del self.objects[before:]  # a function among the arguments lives as long as the call
        try:
            tensors, after = reply["tensors"], reply["after"]
            for tensor, theirs, now in zip(ours, after, reply["traced_after"], strict=True):
                _overwrite(tensor, theirs, now)
            if any(traced) and any(reply["traced"]) and torch.is_grad_enabled():
                tensors = _Through.apply(self, reply["graph"], reply["traced"], tensors, *ours)
            result = self.unpack(reply["packed"], tensors)
            for arg, state in zip(args, reply["states"], strict=True):
                if isinstance(arg, torch.Generator):
                    arg.set_state(state)
                elif isinstance(arg, list | dict) and state:  # the other side has changed it
                    arg.clear()
            drawn = reply["drawn"] is True
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            raise self.lost("unreadable") from None
        if drawn:
            torch.rand(1)  # here, too, the random state has changed then
        return result

    def _called(self, content):
        tensors = [
            each.requires_grad_() if traced else each
            for each, traced in zip(content["tensors"], content["traced"], strict=True)
        ]
        given = [each.clone() if each.requires_grad else each for each in tensors]
        args, kwargs = self.unpack(content["packed"], given)
        shapes = [repr(self.pack(arg, [])) for arg in args]
        states = self.seed(content["seed"])
        with torch.set_grad_enabled(content["grad"] is True):
            result = self.objects[content["function"]](*args, **kwargs)
        results, drawn = [], states is not None and states != _random_states()
        packed = self.pack(result, results)
        self.graphs.append((tensors, results))
        return {
            "packed": packed,
            "tensors": [each.detach() for each in results],
            "traced": [each.requires_grad for each in results],
            "graph": len(self.graphs) - 1,
            "after": [each.detach() for each in given],
            "traced_after": [each.requires_grad for each in given],
            "states": [
                arg.get_state()
                if isinstance(arg, torch.Generator)
                else isinstance(arg, list | dict) and repr(self.pack(arg, [])) != shape
                for arg, shape in zip(args, shapes, strict=True)
            ],
            "drawn": drawn,
        }

    def seed(self, seed):
        """Let random numbers start anew; return the random states."""
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        return _random_states()

    def _backward(self, content):
        tensors, results = self.graphs[content["graph"]]
        leaves = [each for each in tensors if each.requires_grad]
        pairs = zip(results, content["gradients"], strict=True)
        ends = [pair for pair in pairs if pair[0].requires_grad]
        # given the gradients themselves, grad would import SymPy, which is slow
        total = sum((result * gradient).sum() for result, gradient in ends)
        found = iter(torch.autograd.grad(total, leaves, allow_unused=True))
        return [next(found) if each.requires_grad else None for each in tensors]

    def pack(self, value, tensors):
        """Return a value as plain data; its tensors are appended to the list."""
        if isinstance(value, np.generic | np.ndarray) and value.dtype != object:
            value = torch.as_tensor(value.copy())
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized:
                return {"other": "tensor without plain numbers"}
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if value is None or isinstance(value, torch.dtype):
            return value
        for kind in NUMBERS:
            if isinstance(value, kind):  # also of a class derived from it
                return kind(value)
        if isinstance(value, tuple | list):
            kind = tuple if isinstance(value, tuple) else list
            return kind(self.pack(each, tensors) for each in value)
        if isinstance(value, dict):
            return {
                "items": [[self.pack(each, tensors) for each in item] for item in value.items()]
            }
        if isinstance(value, torch.Generator):
            return {"generator": value.get_state()}
        if callable(value):
            self.objects.append(value)
            return {"function": len(self.objects) - 1}
        return {"other": type(value).__name__}

    def unpack(self, value, tensors):
        if isinstance(value, tuple | list):
            return type(value)(self.unpack(each, tensors) for each in value)
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "tensor":
            return tensors[content]
        if kind == "items":
            return dict(self.unpack(content, tensors))
        if kind == "generator":
            generator = torch.Generator()
            generator.set_state(content)
            return generator
        if kind == "function":
            return lambda *args, **kwargs: self.call(content, args, kwargs)
        return _new_class(content, object)()

    def rebuilt(self, content):
        """Return the exception that `described` describes, as far as it is a plain one."""
        try:
            kind, text = getattr(builtins, content["type"], None), str(content["text"])
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                kind = _new_class(content["type"], Exception)
            error = kind.__new__(kind)
            error.args = (text,) if text else ()
            error.elsewhere = {"where": str(content["where"])[:120], "stub": str(content["stub"])}
        except Exception:
            raise self.lost("unreadable") from None
        return error


def _new_class(name, base):
    try:
        return type(name[:80], (base,), {})
    except ValueError:  # no name that Python takes
        return type("unnamed", (base,), {})


class _Through(torch.autograd.Function):
    """Results of the other side, whose gradients the other side computes."""

    @staticmethod
    def forward(ctx, peer, graph, traced, tensors, *inputs):
        ctx.peer, ctx.graph = peer, graph
        pairs = zip(tensors, traced, strict=True)
        ctx.mark_non_differentiable(*(each for each, is_traced in pairs if not is_traced))
        return tuple(tensors)

    @staticmethod
    def backward(ctx, *gradients):
        content = {"graph": ctx.graph, "gradients": [each.detach() for each in gradients]}
        return None, None, None, None, *ctx.peer.ask("backward", content)


def _overwrite(tensor, new, traced):
    """Make a tensor what the other side has made of it."""
    if tensor.shape != new.shape or tensor.dtype != new.dtype:
        tensor.data = new
    elif not torch.equal(tensor, new):
        tensor.data.copy_(new)
    if traced and not tensor.requires_grad:
        tensor.requires_grad_()


def _random_states():  # as in checks/calls.py, which a student's process cannot read
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    numpy_state = name, keys.tobytes(), *rest
    return torch.get_rng_state().numpy().tobytes(), numpy_state, random.getstate()


def described(error, peer):
    """Return what the other side may know of an error, as plain data."""
    frames = [*traceback.walk_tb(error.__traceback__)]
    places = traceback.extract_tb(error.__traceback__)
    ours = [place for place in places if place.filename.startswith("<cell")]
    is_stub = type(error) is NotImplementedError and error.args in ((), ("your turn",))
    try:
        text = str(error)[:2000]
    except Exception:
        text = ""
    named, tensors = None, []
    if hasattr(error, "mistake") and hasattr(error, "results"):
        packed = peer.pack([error.mistake, error.hint, error.results], tensors)
        named = [packed, [each.detach() for each in tensors]]
    return {
        "type": type(error).__name__,
        "text": text,
        "where": f" in line {ours[-1].lineno}, `{ours[-1].line[:80]}`" if ours else "",
        "stub": frames[-1][0].f_code.co_qualname.split(".")[0] if is_stub and frames else "",
        "learner's": hasattr(error, "is_learners"),
        "named": named,
    }
