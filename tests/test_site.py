"""What the site's build checks by itself: links, anchors, nothing from the network, every API module there."""

import importlib
import importlib.util
import json

import pytest

from mxfp4lab.paths import REPO_ROOT

spec = importlib.util.spec_from_file_location("site_build", REPO_ROOT / "docs/build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)


def page(folder, name, body):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<html><body>{body}</body></html>")


def test_whole_pages_have_no_broken_links(tmp_path):
    page(
        tmp_path,
        "index.html",
        '<a href="b/c.html#there">x</a><a href="https://example.org/gone">y</a><a href="#me" id="me">',
    )
    page(tmp_path, "b/c.html", '<p id="there"><a href="../index.html">back</a><a href="mailto:a@b.c">m</a>')
    assert build.broken_links(tmp_path) == []


@pytest.mark.parametrize(
    "body, said",
    [
        ('<a href="gone.html">x</a>', "index.html links to gone.html, which is not there"),
        ('<img src="a%20b.png">', "index.html links to a%20b.png, which is not there"),
        ('<a href="#gone">x</a>', "index.html links to #gone: no such anchor"),
        ('<script src="https://cdn.example/x.js"></script>', "index.html loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/f.css">', "index.html loads //fonts.example/f.css"),
    ],
)
def test_a_broken_link_is_named_with_its_page(tmp_path, body, said):
    page(tmp_path, "index.html", body)
    assert build.broken_links(tmp_path) == [said]


def test_links_of_the_readme_fit_the_site(tmp_path):
    (tmp_path / "docs/images").mkdir(parents=True)
    (tmp_path / "docs/images/a.png").write_bytes(b"")
    readme = tmp_path / "README.md"
    readme.write_text(
        "[c](CONTRIBUTING.md) [code](mxfp4lab/config.py) ![a](docs/images/a.png) [w](https://x.org) [h](#h)"
    )
    expected = "[c](contributing.md) code ![a](docs/images/a.png) [w](https://x.org) [h](#h)"
    assert build.repository_page(readme, tmp_path) == expected


def test_every_module_of_the_api_pages_is_there_and_says_what_it_is():
    for modules in build.API.values():
        for name in modules:
            assert importlib.import_module(f"mxfp4lab.{name}").__doc__, name
    for name in (*build.PAGES, "docs/index.md", "docs/conf.py"):
        if name != "README.md":
            assert (REPO_ROOT / name).is_file(), name


def test_what_papermill_put_into_a_notebook_is_not_on_its_page():
    def cell(source, *tags):
        return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}, "outputs": []}

    text = json.dumps({"cells": [cell("k = 1", "parameters"), cell("k = 2", "injected-parameters"), cell("k")]})
    assert [c["source"] for c in json.loads(build.notebook_page(text))["cells"]] == ["k = 1", "k"]
