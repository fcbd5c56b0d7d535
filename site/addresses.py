"""Where the course is found on a code host and in a cloud, once its repository is known.

`python site/addresses.py [--repository OWNER/NAME]`, or `make badges`, writes them into README.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)\)")
FIRST = Path("notebooks", "00_start_here.ipynb")
PUBLISHED = "gh-pages"  # the branch with the website and, in its folder colab/, the copies
BADGES = re.compile(r"^\[!\[tests\]\(.*\n\n", re.M)


def remote():
    """Return the owner/name under which git knows this repository on GitHub, "" if it does not."""
    command = ["git", "remote", "get-url", "origin"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"github\.com[:/]([^/\s]+/[^/\s]+?)(\.git)?$", run.stdout.strip())
    return found[1] if found else ""


def add_option(parser):
    """Let a command take the repository's address."""
    parser.add_argument("--repository", default=remote(), metavar="OWNER/NAME")


def source(repository, path):
    """Return the address of a file of the course, whose path begins at its root."""
    return f"https://github.com/{repository}/blob/HEAD/{path.as_posix()}"


def website(repository):
    """Return the address at which GitHub Pages serves the website."""
    owner, name = repository.split("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def archive(repository):
    """Return the address of the whole course, in a form that pip installs."""
    return f"https://github.com/{repository}/archive/HEAD.zip"


def colab(repository, path):
    """Return the address at which Colab opens the copy of a lesson or of exercises."""
    return (
        f"https://colab.research.google.com/github/{repository}"
        f"/blob/{PUBLISHED}/colab/{path.as_posix()}"
    )


def binder(repository, path):
    """Return the address at which Binder opens a notebook, in the whole course."""
    return f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{path.as_posix()}"


def badges(repository):
    """Return the line of README with what was tested and where to click."""
    tests = f"https://github.com/{repository}/actions/workflows/tests.yml"
    shown = {
        "tests": (f"{tests}/badge.svg", tests),
        "Open in Colab": (
            "https://colab.research.google.com/assets/colab-badge.svg",
            colab(repository, FIRST),
        ),
        "Open in Binder": ("https://mybinder.org/badge_logo.svg", binder(repository, FIRST)),
        "Open in Codespaces": (
            "https://github.com/codespaces/badge.svg",
            f"https://codespaces.new/{repository}",
        ),
    }
    line = [f"[![{name}]({image})]({link})" for name, (image, link) in shown.items()]
    return " ".join([*line, f"[Website]({website(repository)})"])


def without_badges(readme):
    """Return the text of README without the line of badges."""
    return BADGES.sub("", readme)


def with_badges(readme, repository):
    """Return the text of README with the line of badges below its title; none if no address."""
    title, rest = without_badges(readme).split("\n\n", 1)
    return "\n\n".join([title, *([badges(repository)] if repository else []), rest])


def main(arguments=None):
    """Write the badges into README, or take them out where there is no address."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_option(parser)
    repository = parser.parse_args(arguments).repository
    path = ROOT / "README.md"
    path.write_text(with_badges(path.read_text(encoding="utf-8"), repository), encoding="utf-8")
    print(f"README leads to {repository}" if repository else "no address is known: README has none")


if __name__ == "__main__":
    sys.exit(main())
