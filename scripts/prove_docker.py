"""Builds and runs the CPU image where no Docker engine is: with buildah, on a base by debootstrap.

    sudo python scripts/prove_docker.py --work /var/tmp/prove --record docs/docker.md
    sudo python scripts/prove_docker.py --work /var/tmp/prove --skip-build      # the checks again

Needs root, and buildah, debootstrap, iproute2 and util-linux. A Debian base is made, the
Dockerfile is built on it (chroot isolation, vfs storage), and the images are run through
their own entry point, user and health check, in a network of their own without a way out. Every
check is printed; the outcome goes to `prove.json` in the work folder and to the page.

Where packages come through a mirror, its settings are handed in and stay out of the images:

    --torch-index URL       the index of torch's CPU builds
    --pip-conf FILE         as the build secret `pip`
    --npmrc FILE            as the build secret `npmrc`
    --mount HOST:INSIDE     read-only, during the build alone (wheels, certificates)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASE = "localhost/pylos-base"
NODE_BASE = "localhost/pylos-node"
NETWORK = "pylos-proof"
USER = 1000
PROGRAMS = ("buildah", "debootstrap", "ip", "unshare")
ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read()[:300])"


class Failed(Exception):
    """A check that did not come out."""


def must(true: bool, what: object) -> None:
    if not true:
        raise Failed(str(what))


class Engine:
    """buildah with a store of its own; containers are run as an engine would run them."""

    def __init__(self, work: Path) -> None:
        self.work = work
        store = ["--root", str(work / "storage"), "--runroot", str(work / "run")]
        self._buildah = ["buildah", *store, "--storage-driver", "vfs"]

    def __call__(self, *arguments: str, quiet: bool = True) -> str:
        """One command; what a long one says goes to the terminal."""
        out = subprocess.PIPE if quiet else None
        command = [*self._buildah, *arguments]
        return subprocess.run(command, stdout=out, check=True, text=True).stdout or ""

    def build(self, options: argparse.Namespace) -> None:
        """Both targets. vfs copies the whole tree for every layer, so there are few of them: the
        Dockerfile is built once, to its end, and the lines of its web stage on top of that.
        """
        arguments = {"BASE": BASE, "NODE_BASE": NODE_BASE, "TORCH": "cpu"}
        arguments |= {"TORCH_INDEX": options.torch_index} if options.torch_index else {}
        arguments |= {"REVISION": revision(), "CREATED": f"{datetime.now(UTC):%Y-%m-%d}"}
        command = ["build", "--isolation", "chroot", "--format", "docker", "--layers=false"]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        for name, path in (("pip", options.pip_conf), ("npmrc", options.npmrc)):
            command += ["--secret", f"id={name},src={path}"] if path else []
        for mount in options.mount:
            command += ["--volume", f"{mount}:ro"]
        self(*command, "--tag", image("train"), str(ROOT), quiet=False)
        lines = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        lines = lines.partition("FROM runtime AS web\n")[2].partition("\nFROM ")[0]
        file = self.work / "Web.dockerfile"
        file.write_text(f"FROM {image('train')}\n{lines}", encoding="utf-8")
        self(*command[:6], "--file", str(file), "--tag", image("web"), str(self.work), quiet=False)

    def config(self, target: str) -> dict[str, Any]:
        """The image's settings, as `docker inspect` shows them under Config."""
        found = json.loads(self("inspect", "--type", "image", image(target)))
        config: dict[str, Any] = found["Docker"]["config"]
        return config

    def command(
        self,
        target: str,
        words: list[str] | None,
        *,
        runs: Path | None = None,
        read_only: bool = False,
        user: int | None = None,
        env: dict[str, str] | None = None,
        bare: bool = False,
    ) -> list[str]:
        """The command line that does what `docker run` would: entry point, then words or CMD.

        The network and the process ids are the container's own: nothing is left behind.
        """
        config = self.config(target)
        run = ["run", "--isolation", "chroot"]
        for name, value in (env or {}).items():
            run += ["--env", f"{name}={value}"]
        if runs is not None:
            run += ["--volume", f"{runs}:/runs" + (":ro" if read_only else "")]
        if user is not None:
            run += ["--user", f"{user}:{user}"]
        inside = [] if bare else list(config["Entrypoint"])
        inside += config["Cmd"] if words is None else words
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        outer = ["ip", "netns", "exec", NETWORK, *alone, *self._buildah]
        return [*outer, *run, f"pylos-proof-{target}", "--", *inside]

    def run(self, target: str, words: list[str] | None, **how: Any) -> tuple[int, str]:
        """Exit code, and everything that was printed."""
        done = subprocess.run(
            self.command(target, words, **how),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    @contextlib.contextmanager
    def running(
        self, target: str, words: list[str] | None, **how: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """A container in the background; killed at the end if it still runs."""
        process = subprocess.Popen(
            self.command(target, words, **how),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def image(target: str) -> str:
    return f"localhost/pylos-{target}"


def revision() -> str:
    found = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


def make_bases(engine: Engine, options: argparse.Namespace) -> None:
    """The two base images: Debian with Python, and the same with Node."""
    root, archive = engine.work / "base", engine.work / "base.tar"
    if not archive.exists():
        include = "--include=python3,python3-venv,ca-certificates"
        where = [options.mirror] if options.mirror else []
        command = ["debootstrap", "--variant=minbase", include, options.suite, str(root), *where]
        subprocess.run(command, check=True)
        shutil.rmtree(root / "var/cache/apt/archives")
        partial = archive.with_suffix(".partial")
        subprocess.run(
            ["tar", "-C", str(root), "--exclude=./dev/*", "-cf", str(partial), "."], check=True
        )
        partial.rename(archive)
    listed = engine("images", "--format", "{{.Name}}").split()
    if BASE not in listed:
        file = engine.work / "Base.dockerfile"
        file.write_text("FROM scratch\nADD base.tar /\n", encoding="utf-8")
        engine("build", "--file", str(file), "--tag", BASE, str(engine.work), quiet=False)
    if NODE_BASE not in listed:
        file = engine.work / "Node.dockerfile"
        install = "apt-get update && apt-get install -y --no-install-recommends nodejs npm"
        file.write_text(f"FROM {BASE}\nRUN {install}\n", encoding="utf-8")
        command = ["build", "--isolation", "chroot", "--file", str(file), "--tag", NODE_BASE]
        engine(*command, str(engine.work), quiet=False)


def folder(engine: Engine, name: str, owner: int) -> Path:
    """An empty folder of the host, to be mounted."""
    path = engine.work / "volumes" / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    os.chown(path, owner, owner)
    return path


def ask(address: str, patience: float = 120.0) -> str:
    """What a server in the containers' network answers, once it does."""
    command = ["ip", "netns", "exec", NETWORK, sys.executable, "-c", ASK, address]
    deadline = time.monotonic() + patience
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
        must(time.monotonic() < deadline, f"{address} does not answer: {done.stderr[-200:]}")
        time.sleep(0.5)


def descendant(pid: int, name: str) -> int:
    """The process of this name below another, or 0."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = " ".join(file.read_text(encoding="utf-8") for file in threads)
    for child in map(int, children.split()):
        if Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip() == name:
            return child
        if found := descendant(child, name):
            return found
    return 0


def said(out: str) -> str:
    """The entry point's last word."""
    return [line for line in out.splitlines() if line.startswith("pylos: ")][-1]


def kernels(engine: Engine) -> set[str]:
    code, out = engine.run("train", ["find", "/opt/pylos/kernels", "-name", "*.nbc"])
    must(code == 0, out)
    return set(out.split())


# The checks. Each returns what is worth a line in the record.


def settings(engine: Engine) -> str:
    """Ports, volume, user, health check and labels are in the images."""
    train, web = engine.config("train"), engine.config("web")
    must(set(train["ExposedPorts"]) == {"8000/tcp", "6006/tcp"}, train)
    must("/runs" in train["Volumes"], train)
    must(train["User"] == web["User"] == f"{USER}:{USER}", train)
    must("/health" in str(web["Healthcheck"]) and "Healthcheck" not in train, web)
    labels = {name: text for name, text in train["Labels"].items() if "opencontainers" in name}
    must(len(labels) >= 7 and all(labels.values()), labels)
    version = labels["org.opencontainers.image.version"]
    return f"{len(labels)} OCI labels, version {version}, user {train['User']}"


def sizes(engine: Engine) -> str:
    """How large the images are."""
    listed = json.loads(engine("images", "--json"))
    by_name = {name.partition(":")[0]: item for item in listed for name in item["names"] or []}
    return ", ".join(f"{name} {by_name[image(name)]['size']}" for name in ("train", "web"))


def user_is_not_root(engine: Engine) -> str:
    """Processes run as the image's user, under tini."""
    code, out = engine.run("train", ["sh", "-c", "id; cat /proc/$PPID/comm"])
    must(code == 0 and f"uid={USER}(pylos)" in out and out.split()[-1] == "tini", out)
    return out.splitlines()[0]


def build_settings_stay_out(engine: Engine) -> str:
    """No settings of a mirror, no source tree, no compiler and no Node are in the image."""
    script = "ls -d /etc/pip.conf ~/.npmrc /run/secrets/npmrc /src"
    script += "; for p in node npm gcc; do command -v $p; done"
    _, out = engine.run("train", ["sh", "-c", f"({script}) 2>/dev/null; echo end"], user=0)
    must(out.strip() == "end", out)
    return "nothing found"


def smoke(engine: Engine, trainer: str) -> str:
    """A smoke run as the image's user; its checkpoint lies in the volume; nothing is compiled."""
    runs = folder(engine, "runs", USER)
    before, begin = kernels(engine), time.monotonic()
    code, out = engine.run("train", [f"trainers.{trainer}", "experiment=smoke"], runs=runs)
    seconds = time.monotonic() - begin
    must(code == 0, out)
    must("no GPU is visible" in out and "TensorBoard is on port 6006" in out, out)
    saved = [*runs.rglob("*.safetensors"), *runs.rglob("*.pt")]
    must(bool(saved) and all(path.stat().st_uid == USER for path in saved), list(runs.rglob("*")))
    new = kernels(engine) - before
    must(not new, f"compiled anew: {sorted(new)}")
    return f"{seconds:.0f} s, {len(saved)} checkpoint files, {len(before)} kernels, none new"


def alphazero(engine: Engine) -> str:
    """`trainers.alphazero experiment=smoke` trains."""
    return smoke(engine, "alphazero")


def ppo(engine: Engine) -> str:
    """`trainers.ppo experiment=smoke` trains."""
    return smoke(engine, "ppo")


def other_user(engine: Engine) -> str:
    """`--user 4321:4321`, whom no file knows, trains into a folder of its own."""
    runs = folder(engine, "runs", 4321)
    code, out = engine.run("train", ["trainers.ppo", "experiment=smoke"], runs=runs, user=4321)
    must(code == 0, out)
    must(all(path.stat().st_uid == 4321 for path in runs.rglob("*")), out)
    return "trained"


def gpu_is_asked_for(engine: Engine) -> str:
    """`experiment=gpu` without a card stops at once, with a sentence."""
    runs = folder(engine, "runs", USER)
    code, out = engine.run("train", ["trainers.alphazero", "experiment=gpu"], runs=runs)
    must(code == 1 and "no GPU is visible" in out and "stopped: a GPU was asked for" in out, out)
    must(not list(runs.iterdir()), "it left files")
    return said(out)


def read_only_volume(engine: Engine) -> str:
    """A volume mounted read-only, and one that belongs to root, stop a training at once."""
    words = ["trainers.alphazero", "experiment=smoke"]
    mine, roots = folder(engine, "runs", USER), folder(engine, "roots", 0)
    for runs, read_only in ((mine, True), (roots, False)):
        code, out = engine.run("train", words, runs=runs, read_only=read_only)
        must(code == 1 and f"user {USER} cannot write to /runs" in out, out)
        must("stopped: /runs is not writable" in out, out)
    return said(out)


def stopped_in_order(engine: Engine) -> str:
    """TensorBoard answers beside a training; SIGTERM to tini (docker stop) saves and ends both."""
    runs = folder(engine, "runs", USER)
    words = ["trainers.alphazero", "experiment=smoke", "budget.steps=100000"]
    with engine.running("train", words, runs=runs) as process:
        must("/runs" in ask("http://127.0.0.1:6006/data/logdir"), "another folder")
        deadline = time.monotonic() + 120
        while not list(runs.rglob("*.tfevents*")):
            must(time.monotonic() < deadline, "the training does not begin")
            time.sleep(0.5)
        time.sleep(5)
        begin, tini = time.monotonic(), descendant(process.pid, "tini")
        must(tini > 0, "there is no tini")
        os.kill(tini, signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    seconds = time.monotonic() - begin
    saved = [*runs.rglob("*.safetensors"), *runs.rglob("*.pt")]
    must(process.returncode == 0 and bool(saved), f"{process.returncode} {out}")
    return f"exit code 0, saved, {seconds:.1f} s"


def tensorboard(engine: Engine) -> str:
    """`tensorboard` serves a read-only volume on port 6006."""
    runs = folder(engine, "runs", USER)
    with engine.running("train", ["tensorboard"], runs=runs, read_only=True):
        found = ask("http://127.0.0.1:6006/data/logdir")
        must("/runs" in found, found)
        return found


def web(engine: Engine) -> str:
    """The web target serves page and 3D board; its health check fails before and passes then."""
    check = engine.config("web")["Healthcheck"]["Test"]
    must(check[0] == "CMD", check)
    code, _ = engine.run("web", check[1:], bare=True)
    must(code != 0, "the health check passes without a server")
    with engine.running("web", None):
        health = ask("http://127.0.0.1:8000/health")
        code, out = engine.run("web", check[1:], bare=True)
        must(code == 0, out)
        listed = ask("http://127.0.0.1:8000/checkpoints")
        must("Pylos" in ask("http://127.0.0.1:8000/"), "another page")
        must(bool(ask("http://127.0.0.1:8000/static/dist/board3d.js")), listed)
    return health


CHECKS: list[Callable[[Engine], str]] = [
    settings,
    sizes,
    user_is_not_root,
    build_settings_stay_out,
    alphazero,
    ppo,
    other_user,
    gpu_is_asked_for,
    read_only_volume,
    stopped_in_order,
    tensorboard,
    web,
]


def check_all(engine: Engine, only: list[str]) -> list[dict[str, Any]]:
    """Every check, on containers made for it."""
    for target in ("train", "web"):
        subprocess.run([*engine._buildah, "rm", f"pylos-proof-{target}"], capture_output=True)
        engine("from", "--name", f"pylos-proof-{target}", image(target))
        # buildah lets the volume that the image declares win over one that is mounted
        engine("config", "--volume", "/runs-", f"pylos-proof-{target}")
    subprocess.run(["ip", "netns", "add", NETWORK], check=True)
    subprocess.run(["ip", "-n", NETWORK, "link", "set", "lo", "up"], check=True)
    record = []
    try:
        for check in CHECKS:
            if only and check.__name__ not in only:
                continue
            try:
                passed, detail = True, check(engine)
            except (Failed, subprocess.SubprocessError) as error:
                passed, detail = False, str(error)
            claim = " ".join((check.__doc__ or "").split())
            print(f"{'ok  ' if passed else 'FAIL'} {claim}\n     {detail}", flush=True)
            record.append({"claim": claim, "passed": passed, "detail": detail})
    finally:
        subprocess.run(["ip", "netns", "delete", NETWORK], check=True)
    return record


def write_record(page: Path, record: dict[str, Any]) -> None:
    """Put the outcome between the two marks of a page, in place of the last one."""
    head, begin, rest = page.read_text(encoding="utf-8").partition("<!-- record -->\n")
    _, end, tail = rest.partition("<!-- end of record -->")
    if not begin or not end:
        raise SystemExit(f"{page} has no place for the record")
    where = f"{record['base']}, {record['machine']}, {record['buildah']}, {record['revision']}"
    rows = [f"Recorded on {record['date']} ({where}):", "", "| | | |", "|---|---|---|"]
    for check in record["checks"]:
        detail = " ".join(check["detail"].split())[:200].replace("|", "/")
        rows.append(f"| {'yes' if check['passed'] else 'NO'} | {check['claim']} | {detail} |")
    text = "\n".join(rows)
    page.write_text(f"{head}{begin}\n{text}\n\n{end}{tail}", encoding="utf-8")


def main() -> int:
    """Build, check, record; 1 if a check fails."""
    options = parser().parse_args()
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        print(f"needs root and {', '.join(PROGRAMS)}; missing: {missing}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    engine = Engine(options.work.resolve())
    if not options.skip_build:
        make_bases(engine, options)
        engine.build(options)
    record: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "base": f"Debian {options.suite} by debootstrap",
        "buildah": engine("--version").strip(),
        "machine": platform.machine(),
        "revision": revision(),
        "checks": check_all(engine, options.only),
    }
    (engine.work / "prove.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if options.record:
        write_record(options.record, record)
    return 0 if all(check["passed"] for check in record["checks"]) else 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--work", type=Path, required=True, help="folder for the bases and images (15 GB)")
    add("--suite", default="bookworm", help="release of Debian (default: bookworm)")
    add("--mirror", help="where Debian is taken from (default: debootstrap's choice)")
    add("--torch-index", metavar="URL", help="index that has torch's CPU builds")
    add("--pip-conf", type=Path, metavar="FILE")
    add("--npmrc", type=Path, metavar="FILE")
    add("--mount", action="append", default=[], metavar="HOST:INSIDE")
    add("--skip-build", action="store_true", help="check the images that are there")
    add("--record", type=Path, metavar="PAGE", help="write the outcome there: docs/docker.md")
    add("--only", nargs="+", default=[], metavar="CHECK", help="some checks, by function name")
    return parser


if __name__ == "__main__":
    sys.exit(main())
