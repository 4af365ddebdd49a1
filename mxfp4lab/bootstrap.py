"""Makes .venv: run as a plain script by `make setup`, with the standard library only.

A machine whose Python already has torch and triton (a ROCm or CUDA box) keeps them: the environment sees that
Python's packages and never installs either. Elsewhere torch comes from PyPI, and the triton it brings is kept if the
offline compiler is known to work with it; else a known one is installed.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
TORCH, TRITON, AITER = "torch==2.13.0", "triton==3.9.0", "amd-aiter==0.1.7.post2.dev18"
TRITON_RANGE = ((3, 6), (3, 9))
HOST_PATHS = "zz_host_torch.pth"

PROBE = """
import json, os
found = {}
for name in ("torch", "triton"):
    try:
        module = __import__(name)
        found[name] = [getattr(module, "__version__", "?"), os.path.dirname(os.path.dirname(module.__file__))]
    except Exception:
        pass
print(json.dumps(found))
"""


def probe(python: str) -> dict[str, list[str]]:
    """Which of torch and triton `python` can import, as {name: [version, site-packages folder]}."""
    done = subprocess.run([python, "-W", "ignore", "-c", PROBE], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {}


def triton_is_supported(version: str) -> bool:
    """True if the offline compiler is tested with this triton (3.6 to 3.9)."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return False
    return TRITON_RANGE[0] <= (major, minor) <= TRITON_RANGE[1]


def make_venv(venv: Path, host: dict[str, list[str]]) -> None:
    """Creates the environment; with torch and triton on the host it inherits their folders."""
    inherit = {"torch", "triton"} <= host.keys()
    flags = ["--system-site-packages"] if inherit else []
    subprocess.run([sys.executable, "-m", "venv", *flags, str(venv)], check=True)
    if inherit:
        # A virtual environment made from inside another one does not see the outer one's packages: name them. The
        # file sorts last, so what .venv itself installs comes first on sys.path.
        site = next((venv / "lib").glob("python3*/site-packages"))
        (site / HOST_PATHS).write_text("\n".join(dict.fromkeys(folder for _, folder in host.values())) + "\n")


def main() -> int:
    """Builds or completes the environment; says what was found and what is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("--aiter", action="store_true", help=f"also install {AITER} (40 MB, without its dependencies)")
    parser.add_argument("--extras", default="test,codeobject", help="extras of pyproject.toml to install")
    options = parser.parse_args()
    venv = options.venv.absolute()
    python = str(venv / "bin" / "python")
    if sys.version_info < (3, 11):  # noqa: UP036 - this script is what tells an older Python so
        print(f"mxfp4lab needs Python >= 3.11; {sys.executable} is {sys.version.split()[0]}", file=sys.stderr)
        return 2

    def pip(*arguments: str) -> None:
        command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
        subprocess.run(command, check=True, cwd=REPO)

    if not (venv / "bin" / "python").exists():
        make_venv(venv, probe(sys.executable))
    inherits = any(venv.glob(f"lib/python3*/site-packages/{HOST_PATHS}"))
    if not inherits and "torch" not in probe(python):
        pip(TORCH)
    if not inherits and not triton_is_supported(probe(python).get("triton", ["none"])[0]):
        pip(TRITON)
    pip("-c", str(REPO / "requirements.lock"), "-e", f".[{options.extras}]")
    if options.aiter:
        pip("--no-deps", AITER)
    found = probe(python)
    for name, (version, folder) in found.items():
        print(f"setup: {'keeps the host' if inherits else 'has'} {name} {version} ({folder})")
    if not triton_is_supported(found.get("triton", [""])[0]):
        print("setup: warning: this triton is outside 3.6 to 3.9; the offline compiler is not tested with it")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PIP_ROOT_USER_ACTION", "ignore")
    sys.exit(main())
