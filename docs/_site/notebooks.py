"""Run the notebooks in examples/ and store them with their outputs: `python docs/_site/notebooks.py`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


def _is_ours(output: dict[str, Any]) -> bool:
    """Tell whether an output is more than a warning of another package."""
    return output.get("name") != "stderr" or "DPWarning" in output["text"]


def _without_paths(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output whose warnings don't say on which line of which file they were raised."""
    if output.get("name") == "stderr":
        output["text"] = re.sub(r"^.*?(DPWarning: .*?)\n(?:  .*\n)?", r"\1\n", output["text"])
    return output


def main() -> None:
    """Run each notebook in a folder of its own, whose name doesn't stay in the outputs."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = nbformat.read(path, as_version=4)
            client = NotebookClient(
                notebook, timeout=300, record_timing=False, resources={"metadata": {"path": folder}}
            )
            client.execute()
            notebook.metadata.pop("language_info", None)
            for cell in (cell for cell in notebook.cells if cell["cell_type"] == "code"):
                cell["outputs"] = [_without_paths(output) for output in cell.get("outputs", []) if _is_ours(output)]
            text = nbformat.writes(notebook).replace(f"{Path(folder).resolve()}/", "")
            path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
