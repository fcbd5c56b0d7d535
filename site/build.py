"""Make the website from the committed notebooks, without running them: python site/build.py"""

import shutil
import sys
from pathlib import Path

import nbformat
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
PAGES = ROOT / "build" / "pages"
OUT = ROOT / "build" / "site"


def main():
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    shutil.copytree(HERE, PAGES)
    for folder in ["notebooks", "exercises", "solutions"]:
        (PAGES / folder).mkdir()
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            page = nbformat.read(path, as_version=4)
            for cell in page.cells:
                prepare(cell)
            nbformat.write(page, PAGES / folder / path.name)
    return build_main(["-q", "-j", "2", "-W", "--keep-going", str(PAGES), str(OUT)])


def prepare(cell):
    if cell.cell_type == "code" and cell.metadata.get("jupyter", {}).get("outputs_hidden"):
        cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output"]
        cell.outputs = cell.outputs[1:]


if __name__ == "__main__":
    sys.exit(main())
