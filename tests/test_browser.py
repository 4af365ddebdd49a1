"""Every notebook in JupyterLab in headless Chromium: opened, run whole in smoke form, looked at, its widget used.

Run by `make test-browser`. Screenshots stay in outputs/browser/.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from mxfp4lab.paths import REPO_ROOT

pytestmark = pytest.mark.browser
NOTEBOOKS = sorted((REPO_ROOT / "notebooks").glob("*.ipynb"))
SHOTS = REPO_ROOT / "outputs/browser"
WIDTH, TALLEST = 1500, 15000
RUN_S = 240
LONG_SEARCH = "04_long_search.ipynb"  # one that is stopped on the way
CHROMIUM_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none", "recordTiming": False},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def prepare(notebook: Path, target: Path, out: Path, *parameters: str) -> None:
    command = [sys.executable, "-m", "papermill", "--prepare-only", str(notebook), str(target), "--no-progress-bar"]
    command += ["-p", "out", str(out), *parameters]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own: no token, only on this machine, settings and files in a scratch folder."""
    folder = tmp_path_factory.mktemp("lab")
    work = folder / "work"
    work.mkdir()
    for notebook in NOTEBOOKS:
        prepare(notebook, work / notebook.name, folder / "out", "-p", "smoke", "true")
    prepare(REPO_ROOT / "notebooks/04_tune.ipynb", work / LONG_SEARCH, folder / "out_long", "-p", "budget", "all")
    for name, values in SETTINGS.items():
        path = folder / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    port = free_port()
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, **own, "PYTHONPATH": str(REPO_ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    log = (folder / "lab.log").open("w")
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=",
        "--LabApp.expose_app_in_browser=True", f"--LabApp.user_settings_dir={folder / 'settings'}",
        f"--LabApp.workspaces_dir={folder / 'workspaces'}", f"--ServerApp.root_dir={work}",
        "--LabApp.news_url=", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
    url = f"http://127.0.0.1:{port}"
    try:
        said = folder / "lab.log"
        wait(lambda: answers(url + "/api/status"), 90, lambda: f"JupyterLab did not start: {said.read_text()[-1500:]}")
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium with a profile of its own."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install -e .[browser]")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.set_script_timeout(60)
    try:
        yield found
    finally:
        found.quit()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def wait(condition, seconds: float, complaint) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(complaint() if callable(complaint) else complaint)
        time.sleep(0.5)


def open_notebook(browser, lab: str, name: str) -> None:
    """Open a notebook and wait for its kernel."""
    browser.set_window_size(WIDTH, 1000)
    browser.get(f"{lab}/lab/tree/{name}?reset")
    ready = """
        const panel = window.jupyterapp && window.jupyterapp.shell.currentWidget;
        return !!(panel && panel.context && panel.context.isReady && panel.context.path === arguments[0]
                  && panel.sessionContext.session && panel.sessionContext.session.kernel
                  && panel.sessionContext.session.kernel.status === 'idle');
    """
    wait(lambda: browser.execute_script(ready, name), 120, f"{name} did not open")


def start_all(browser) -> None:
    """Run all cells; `window.allRan` is set when they have."""
    browser.execute_script("""
        window.allRan = null;
        window.jupyterapp.commands.execute('application:toggle-left-area').catch(() => {});
        window.jupyterapp.commands.execute('notebook:run-all-cells').then(ok => { window.allRan = [ok]; },
                                                                         why => { window.allRan = [String(why)]; });
    """)


def open_and_run(browser, lab: str, name: str) -> list[dict]:
    """Open a notebook, run all its cells, and return them with their outputs."""
    open_notebook(browser, lab, name)
    start_all(browser)
    wait(lambda: browser.execute_script("return window.allRan !== null;"), RUN_S, f"{name} ran longer than {RUN_S} s")
    cells = "return window.jupyterapp.shell.currentWidget.context.model.toJSON().cells;"
    return browser.execute_script(cells)


def in_kernel(browser, code: str) -> str:
    """Run code in the open notebook's kernel; what it printed, or its error."""
    return browser.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
        const asked = kernel.requestExecute({code: arguments[0]});
        let said = '';
        asked.onIOPub = message => { said += message.content.text || message.content.evalue || ''; };
        asked.done.then(() => done(said));
        """,
        code,
    )


def screenshot(browser, name: str) -> Path:
    """The whole notebook on one picture."""
    browser.set_window_size(WIDTH, 1000)  # one can scroll past the end by a window's height
    time.sleep(0.5)
    height = browser.execute_script("""
        const panel = window.jupyterapp.shell.currentWidget.node;
        const outer = panel.querySelector('.jp-WindowedPanel-outer') || panel.querySelector('.jp-Notebook');
        outer.scrollTop = 0;
        return Math.ceil(outer.scrollHeight);
    """)
    browser.set_window_size(WIDTH, min(TALLEST, int(height) + 200))
    browser.execute_script("window.jupyterapp.commands.execute('apputils:dismiss-notification').catch(() => {});")
    time.sleep(1.5)
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name}.png"
    assert browser.save_screenshot(str(path))
    return path


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_jupyterlab(browser, lab, notebook):
    cells = open_and_run(browser, lab, notebook.name)
    errors = [
        "\n".join(output.get("traceback", []))[-1500:]
        for cell in cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "error"
    ]
    path = screenshot(browser, notebook.stem)
    assert not errors, f"{notebook.name}: {errors[0]} ({path})"
    silent = [c for c in cells if c["cell_type"] == "code" and c["source"] and not c.get("execution_count")]
    assert not silent, f"{notebook.name}: {len(silent)} cells did not run ({path})"
    if notebook.stem == "01_shuffle":
        use_the_explorer(browser)
    if notebook.stem in ("01_shuffle", "04_tune", "06_your_kernel"):
        theme = "window.jupyterapp.commands.execute('apputils:change-theme', {theme: arguments[0]});"
        browser.execute_script(theme, "JupyterLab Dark")
        time.sleep(2)
        screenshot(browser, f"{notebook.stem}_dark")
        assert browser.execute_script("return document.body.dataset.jpThemeLight;") == "false"
        browser.execute_script(theme, "JupyterLab Light")
    browser.execute_async_script("""
        const done = arguments[arguments.length - 1];
        const panel = window.jupyterapp.shell.currentWidget;
        panel.sessionContext.shutdown().then(() => panel.context.save()).then(() => done(), () => done());
    """)


def test_the_live_view_is_calm_and_the_stop_button_leaves_a_result(browser, lab):
    open_notebook(browser, lab, LONG_SEARCH)
    browser.execute_script("""
        window.drawn = [];
        const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
        kernel.iopubMessage.connect((_, message) => {
            if (message.header.msg_type === 'update_display_data') window.drawn.push(Date.now());
        });
    """)
    start_all(browser)
    wait(lambda: browser.execute_script("return window.drawn.length;") >= 6, RUN_S, "the live view does not move")
    browser.find_element("css selector", 'jp-button[data-command="notebook:interrupt-kernel"]').click()
    wait(lambda: browser.execute_script("return window.allRan !== null;"), 60, "the stop button does not stop it")
    drawn = browser.execute_script("return window.drawn;")[:-1]  # the last one says that it is over, at once
    assert min(b - a for a, b in itertools.pairwise(drawn)) > 400, "more than about two updates a second"
    said = in_kernel(browser, "print(result.interrupted, len(result.ranked()), len(str(result.table(3)).splitlines()))")
    interrupted, ranked, lines = said.split()
    assert interrupted == "True" and int(ranked) > 0 and int(lines) > 1, said
    screenshot(browser, "04_tune_interrupted")


def use_the_explorer(browser) -> None:
    """Move the row slider one step, from 37: the table below it must tell of row 38."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    shown = "return [...document.querySelectorAll('.widget-html-content')].map(e => e.innerText).join('|');"
    wait(lambda: browser.execute_script(shown), 30, "01_shuffle shows no explorer")
    before = browser.execute_script(shown)
    handle = browser.find_elements(By.CSS_SELECTOR, ".widget-slider .noUi-handle")[0]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus();", handle)
    handle.send_keys(Keys.ARROW_RIGHT)
    wait(lambda: browser.execute_script(shown) != before, 30, "the explorer does not answer its slider")
    after = browser.execute_script(shown)
    assert "e8m0 scales\t38\t5" in after and "e8m0 scales\t37\t5" in before
    screenshot(browser, "01_shuffle_explorer")
