"""The command `attention-course`: open the course in a folder, update it, and grade a class."""

import argparse
import os
import sys
from itertools import pairwise
from pathlib import Path

from course_utils import course_folder

END = """\
`start` passes options on to JupyterLab, such as --no-browser or --port=8889.
The website is built in a clone of the course, by `make site`."""


def main(arguments=None):
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="attention-course",
        description="An interactive course on attention, in JupyterLab",
        epilog=END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, run, words, **settings):
        command = commands.add_parser(name, help=words, description=words, **settings)
        command.set_defaults(name=name, run=run)
        return command

    usual = Path("." if Path(course_folder.BASE).is_dir() else "attention-course")
    words = "default: this folder if the course was started in it, else attention-course"
    for command in [
        add("start", _start, "put lessons and exercises into a folder, and open them"),
        add("update", _update, "bring new lessons and exercises into it, and keep the answers"),
    ]:
        command.add_argument("folder", nargs="?", type=Path, default=usual, help=words)
    add("model", _model, "download the language model of lessons 10, 10b and 12 (93 MB)")
    add("grade", _grade, "grade the notebooks of a class, on Linux", add_help=False)
    given, others = parser.parse_known_args(arguments)
    if others and given.name in ("update", "model"):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    for option, value in pairwise(sys.argv[1:] if arguments is None else arguments):
        if option in others and "=" not in option and value == str(getattr(given, "folder", "")):
            parser.error(f"write {option}={value}, or put the folder before {option}")
    try:
        return given.run(given, others)
    except (OSError, ValueError) as error:
        sys.exit(f"attention-course {given.name}: {error}")


def _start(given, options):
    is_newer = course_folder.start(given.folder)
    print(f"The course is in {given.folder.resolve()}.")
    if is_newer:
        print(f"A newer version is installed. To get it: attention-course update {given.folder}")
    if "JUPYTER_SERVER_ROOT" in os.environ:
        print("This terminal is JupyterLab's own: open the folder in its file browser.")
        return None
    from jupyterlab.labapp import LabApp  # slow to import

    os.chdir(given.folder)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")  # containers often run as root, which Jupyter refuses
    return LabApp.launch_instance([".", *options])


def _update(given, _):
    changes = course_folder.update(given.folder)
    print("\n".join(changes or ["All lessons and exercises are up to date."]))


def _model(*_):
    from course_utils.model_file import fetch

    fetch()


def _grade(_, options):
    if sys.platform != "linux":
        sys.exit("attention-course grade: it runs only on Linux")
    from course_utils.grade import main  # it imports PyTorch

    main(options)


if __name__ == "__main__":
    sys.exit(main())
