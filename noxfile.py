"""`make test` on other arithmetic, with all cases, and on other Pythons: `make test-everywhere`."""

import os
import subprocess
import sys

import nox

TEST = ["-m", "tools.run_all"]
# Other CPUs add in another order, and round otherwise. These settings make PyTorch, and OpenBLAS
# under NumPy, calculate on this machine as they would on others.
ARITHMETIC = [
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"OPENBLAS_CORETYPE": "SkylakeX"},
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "Nehalem"},
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "2"},
]
# What ends at once where NumPy is told to use instructions that the CPU lacks (SkylakeX: AVX-512).
TRIAL = "import numpy; numpy.ones((9, 9)) @ numpy.ones((9, 9))"


@nox.session(venv_backend="none")
@nox.parametrize("settings", ARITHMETIC, ids=["=".join(*each.items()) for each in ARITHMETIC])
def arithmetic(session, settings):
    trial = subprocess.run([sys.executable, "-c", TRIAL], env=os.environ | settings)
    if trial.returncode not in (0, 1):  # 1 is an error, which the tests will show
        session.skip("this CPU has no such arithmetic")
    session.run(sys.executable, *TEST, env=settings)  # with the packages that stand beside nox


@nox.session(venv_backend="none")
def every_case(session):
    session.run(sys.executable, *TEST, env={"EVERY_CASE": "1"})


@nox.session(python=["3.11", "3.12", "3.13", "3.14"], reuse_venv=True)
def python(session):
    session.install("-r", "requirements-authors.txt")
    session.run("python", *TEST)
