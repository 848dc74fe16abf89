"""A page in a real browser: headless Chromium runs the measurements in the page and prints the results."""

import json
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in _NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: install chromium to look at the views")

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip

# The page measures boxes that are wider than the page, and the contrast of every text with its background.
_MEASURE = r"""
const luminance = c => {
  const [r, g, b] = c.map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const parsed = text => { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const ground = node => {
  for (let e = node; e; e = e.parentElement) {
    const c = parsed(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c;
    if (c[3] > 0) throw new Error("a half transparent background");
  }
  return [255, 255, 255, 1];
};
const frame = document.getElementById("frame"), found = {texts: [], wide: [], scripts: 0, scrolled: 0};
document.querySelectorAll("details").forEach(e => { e.open = true; });
const scrolls = e => e && e !== frame && (getComputedStyle(e).overflowX === "auto" || scrolls(e.parentElement));
found.page = [frame.scrollWidth, frame.clientWidth];
for (const e of frame.querySelectorAll("*")) {
  const box = e.getBoundingClientRect();
  if (box.right > frame.getBoundingClientRect().right + 0.5 && !scrolls(e.parentElement)) found.wide.push(e.outerHTML);
  if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto") found.scrolled += 1;
}
const walk = document.createTreeWalker(frame, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
  if (!text || e.tagName === "STYLE") continue;
  const a = luminance(parsed(getComputedStyle(e).color).slice(0, 3)), b = luminance(ground(e).slice(0, 3));
  found.texts.push([text.slice(0, 60), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
}
found.scripts = frame.querySelectorAll("script, link, img, iframe, [onload], [onerror], [onclick]").length;
found.ground = ground(frame.querySelector(".dp-polars"));
document.body.innerHTML = "<pre id='found'></pre>";
document.getElementById("found").textContent = JSON.stringify(found);
"""

# The rules by which JupyterLab styles the output of cells, shortened.
JUPYTER = """
.jp table{border-collapse:collapse;border:none;table-layout:fixed;margin-left:auto;color:#111;font-size:12px}
.jp td,.jp th{text-align:right;padding:.5em;white-space:normal;max-width:none}
.jp tbody tr:nth-child(odd){background:#777}.jp tbody tr:nth-child(even){background:#888}
"""


def page_of(view: str, *, width: int = 600, theme: str = "", styles: str = "", measured: bool = True) -> str:
    """Return a page with a view, `width` pixels wide, under the theme of a notebook (an attribute of the body)."""
    script = f"<script>{_MEASURE}</script>" if measured else ""
    return (
        f"<!doctype html><html><head><meta charset='utf-8'><style>body{{margin:0}}{styles}</style></head><body {theme}>"
        f"<div id='frame' class='jp' style='width:{width}px;overflow-x:auto'>{view}</div>{script}</body></html>"
    )


def run(page: str, *arguments: str, dark: bool = False) -> str:
    """Open a page in a new browser and return what it prints."""
    if BROWSER is None:
        raise RuntimeError("no browser")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "page.html")
        place.write_text(page, encoding="utf-8")
        # In headless mode only this setting of the renderer makes the system's colour scheme dark (0 means dark).
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        command = [BROWSER, *_FLAGS, scheme, f"--user-data-dir={folder}/profile", *arguments, place.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def measure(view: str, *, dark: bool = False, **words) -> dict:
    """Return the measurements of a page."""
    shown = run(page_of(view, **words), "--dump-dom", dark=dark)
    found = re.search(r"<pre id=\"found\">(.*?)</pre>", shown, re.DOTALL)
    assert found, shown[:2000]
    return json.loads(unescape(found[1]))


def screenshot(view: str, path: Path, *, dark: bool = False, height: int = 700, **words) -> None:
    """Save a picture of a view."""
    arguments = [f"--screenshot={path}", f"--window-size=620,{height}", "--virtual-time-budget=3000"]
    run(page_of(view, measured=False, **words), *arguments, dark=dark)
