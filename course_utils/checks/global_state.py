"""What is global in Python and its libraries: how to read it, and how to put it back."""

import contextlib
import gc
import locale
import logging
import math
import os
import random
import sys
import threading
import time

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F


def _torch_state():
    return torch.get_rng_state().numpy().tobytes()


def _set_torch_state(state):
    torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _numpy_state():
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return name, keys.tobytes(), *rest


def _set_numpy_state(state):
    name, keys, *rest = state
    np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))  # noqa: NPY002


def _set_environment(variables):
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    if dict(os.environ) != variables:  # setting them is slow
        os.environ.update(variables)


def _loggers():
    manager = logging.root.manager
    loggers = [each for each in manager.loggerDict.values() if isinstance(each, logging.Logger)]
    states = [
        (each, each.level, each.handlers[:], each.filters[:], each.propagate, each.disabled)
        for each in (logging.root, *loggers)
    ]
    return manager.disable, states


def _set_loggers(before):
    if logging.root.manager.disable != before[0]:  # setting it is slow
        logging.disable(before[0])
    for each, level, each.handlers, each.filters, each.propagate, each.disabled in before[1]:
        if each.level != level:  # so is this
            each.setLevel(level)


def _set_garbage_collection(on):
    (gc.enable if on else gc.disable)()


def _anomaly_mode():
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _entries(names):
    """Return the pair for the entries of a dictionary, such as a module's."""
    # the dict's own methods, since looking up an entry of rcParams may load a backend
    return lambda: dict(dict.items(names)), lambda before: dict.update(names, before)


# Pairs (get, put), put(get()) changes nothing. What PyTorch, NumPy and decimal keep for each thread
# on its own (grad mode, default device, autocast) ends with the thread and needs no pair.
RANDOM = [
    (_torch_state, _set_torch_state),
    (_numpy_state, _set_numpy_state),
    (random.getstate, random.setstate),
]
SETTINGS = [
    *(_entries(vars(each)) for each in (math, os, random, time, np, torch, F)),
    (lambda: dict(os.environ), _set_environment),
    (os.getcwd, os.chdir),
    (lambda: sys.path[:], lambda paths: sys.path.__setitem__(slice(None), paths)),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (gc.isenabled, _set_garbage_collection),
    (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    (_loggers, _set_loggers),
    _entries(matplotlib.rcParams),
    (np.geterr, lambda how: np.seterr(**how)),
    (np.get_printoptions, lambda options: np.set_printoptions(**options)),
    (torch._tensor_str.get_printoptions, lambda options: torch.set_printoptions(**options)),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (_anomaly_mode, lambda modes: torch.set_anomaly_enabled(*modes)),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
]


@contextlib.contextmanager
def restored(settings):
    """Put the settings back at the end, those that can be read at the beginning."""
    before = []
    for get, put in settings:
        with contextlib.suppress(Exception):  # the working directory may be gone, for instance
            before.append((put, get()))
    try:
        yield
    finally:
        for put, value in before:
            with contextlib.suppress(Exception):  # and must not keep the others from being put back
                put(value)
