"""`make test` on other arithmetic, with all cases, and on other Pythons: `make test-everywhere`."""

import sys

import nox

TEST = "tests/stages.py"
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


@nox.session(venv_backend="none")
@nox.parametrize("settings", ARITHMETIC, ids=["=".join(*each.items()) for each in ARITHMETIC])
def arithmetic(session, settings):
    session.run(sys.executable, TEST, env=settings)  # with the packages that stand beside nox


@nox.session(venv_backend="none")
def every_case(session):
    session.run(sys.executable, TEST, env={"EVERY_CASE": "1"})


@nox.session(python=["3.11", "3.12", "3.13", "3.14"], reuse_venv=True)
def python(session):
    session.install("-r", "requirements-authors.txt")
    session.run("python", TEST)
