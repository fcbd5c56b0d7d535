"""Build what a release has, in build/release: the wheel, two archives and the website.

python -m tools.release [--repository OWNER/NAME]

All is made from the last commit, so that no answer in a working copy gets into it.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / "build" / "release"
NOTES = ROOT / "build" / "notes.md"
# What students do without: the solutions, and what only authors need. Tests have answers, too.
FOR_TEACHERS = [".ci", ".github", "site", "solutions", "tests", "tools"]


def write_archives(folder, version):
    """Write two archives of the last commit: all of it, and one without solutions for classes.

    Returns
    -------
    tuple of pathlib.Path
        The archive with all, and the one for classes.
    """
    name = f"attention-course-{version}"
    paths = folder / f"{name}.zip", folder / f"{name}-without-solutions.zip"
    without = [".", *(f":(exclude){each}" for each in FOR_TEACHERS)]
    for path, chosen in zip(paths, [[], without], strict=True):
        command = ["git", "archive", f"--prefix={name}/", f"--output={path}", "HEAD", *chosen]
        subprocess.run(command, cwd=ROOT, check=True)
    return paths


def changes(version):
    """Return what CHANGELOG.md says of a version.

    Raises
    ------
    ValueError
        If it says nothing.
    """
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}\b.*\n+((?:(?!## ).*\n)*)", text, re.M)
    if not found:
        raise ValueError(f"CHANGELOG.md must have a section ## {version}: write what is new")
    return found[1]


def main():
    """Build all parts of the release of the version in pyproject.toml."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", default="", metavar="OWNER/NAME")
    repository = parser.parse_args().repository
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    try:
        NOTES.write_text(changes(version), encoding="utf-8")
    except ValueError as reason:
        sys.exit(str(reason))
    archive, _ = write_archives(RELEASE, version)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(archive, scratch)
        (course,) = Path(scratch).iterdir()
        for command in [
            ["-m", "hatchling", "build", "-t", "wheel", "-d", str(RELEASE)],
            ["site/build.py", "--repository", repository],
        ]:
            subprocess.run([sys.executable, *command], cwd=course, check=True)
        shutil.make_archive(str(RELEASE / f"website-{version}"), "zip", course / "build" / "site")
    print("\n".join(sorted(path.name for path in RELEASE.iterdir())))


if __name__ == "__main__":
    main()
