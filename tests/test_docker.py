"""The container files, without an engine: what they refer to exists, and the entry point is run.

`scripts/prove_docker.py` builds and runs the real image; docs/docker.md has its record.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import pylos_env
from pylos_web.cli import PORT
from trainers.paths import configs

ROOT = Path(__file__).resolve().parent.parent
ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
TRAINERS = {"trainers.alphazero": "alphazero", "trainers.ppo": "ppo"}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the entry point is a shell script")


def instructions() -> list[tuple[str, str, str]]:
    """The Dockerfile as (stage, instruction, rest), continued lines joined, comments left out."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    found, stage = [], ""
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            stage = rest.split()[-1] if word == "FROM" else stage
            found.append((stage, word, rest.strip()))
    return found


INSTRUCTIONS = instructions()
STAGES = {stage for stage, word, _ in INSTRUCTIONS if word == "FROM"}
ARGUMENTS = {rest.partition("=")[0] for _, word, rest in INSTRUCTIONS if word == "ARG"}
EXPOSED = {port for _, word, rest in INSTRUCTIONS if word == "EXPOSE" for port in rest.split()}


def of(word: str, *stages: str) -> list[str]:
    """What these stages say after an instruction."""
    return [rest for stage, found, rest in INSTRUCTIONS if found == word and stage in stages]


def ignored(path: str) -> bool:
    """Does .dockerignore leave this path out? The last pattern that fits decides."""
    out = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keep, pattern = pattern.startswith("!"), pattern.removeprefix("!")
        parts = path.split("/")
        heads = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        if pattern.startswith("**/"):
            fits = any(fnmatch.fnmatchcase(part, pattern[3:]) for part in parts)
        else:  # a star stays inside its folder
            same_depth = [head for head in heads if head.count("/") == pattern.count("/")]
            fits = any(fnmatch.fnmatchcase(head, pattern) for head in same_depth)
        out = not keep if fits else out
    return out


def lint(program: str, file: Path) -> None:
    found = shutil.which(program, path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    assert found, f"{program} is part of the dev extra"
    result = subprocess.run([found, str(file)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_hadolint_finds_nothing() -> None:
    lint("hadolint", ROOT / "Dockerfile")


def test_shellcheck_finds_nothing() -> None:
    lint("shellcheck", ENTRYPOINT)


def test_what_is_copied_exists_and_is_let_through() -> None:
    for stage, word, rest in INSTRUCTIONS:
        if word != "COPY" or "--from=" in rest:
            continue
        sources = [part for part in rest.split() if not part.startswith("--")][:-1]
        for source in sources:
            assert (ROOT / source).exists(), f"{stage}: {source}"
            assert source == "." or not ignored(source), f"{stage}: {source} is left out"
    for needed in ("pyproject.toml", "README.md", "LICENSE", "configs/ppo/config.yaml"):
        assert not ignored(needed)
    for package in ("pylos_env/kernel.py", "trainers/network.py", "pylos_web/static/index.html"):
        assert (ROOT / package).exists()
        assert not ignored(package)
    assert not ignored("pylos_web/board3d/package-lock.json")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".venv-rllib/dev",
        "runs/alphazero/latest.safetensors",
        "pylos_web/board3d/node_modules/three/package.json",
        "pylos_web/static/dist/board3d.js",
        "pylos_env/__pycache__/kernel.cpython-311.pyc",
        ".env",
        "pip.conf",
        "tests/test_docker.py",
        "pylos_env.egg-info/PKG-INFO",
    ],
)
def test_dockerignore_leaves_out(path: str) -> None:
    assert ignored(path)


def test_later_stages_take_from_earlier_ones() -> None:
    seen: set[str] = set()
    for stage, word, rest in INSTRUCTIONS:
        for source in re.findall(r"--from=(\S+)", rest):
            assert source in seen - {stage}
        if word == "FROM":
            seen.add(stage)
    assert {"board", "build", "runtime", "web", "train"} == STAGES
    assert [stage for stage, word, _ in INSTRUCTIONS if word == "FROM"][-1] == "train"


def test_the_image_has_what_was_promised() -> None:
    assert of("FROM", "web", "train") == ["runtime AS web", "runtime AS train"]
    assert EXPOSED == {"8000", "6006"} == {str(PORT), "6006"}
    assert of("VOLUME", "train") == ["/runs"]
    assert of("USER", "runtime", "web", "train") == ["${USER_ID}:${USER_ID}"]
    assert json.loads(of("ENTRYPOINT", "runtime")[0])[0] == "tini"
    assert of("FROM", "board") == ["${NODE_BASE} AS board"]
    assert {"BASE", "NODE_BASE", "TORCH", "TORCH_INDEX", "KERNEL_CPU", "USER_ID"} <= ARGUMENTS
    for name in ("title", "description", "licenses", "version", "revision", "created", "base.name"):
        assert f"org.opencontainers.image.{name}=" in of("LABEL", "runtime")[0]
    assert f"VERSION={pylos_env.__version__}" in of("ARG", "runtime")
    (health,) = of("HEALTHCHECK", "web")
    assert f"http://127.0.0.1:{PORT}/health" in health
    assert not of("HEALTHCHECK", "runtime", "train")


def test_an_argument_has_one_default() -> None:
    """Stages repeat the arguments they use, and must not disagree."""
    defaults: dict[str, set[str]] = {}
    for _, word, rest in INSTRUCTIONS:
        if word == "ARG" and "=" in rest:
            name, _, value = rest.partition("=")
            defaults.setdefault(name, set()).add(value)
    assert all(len(values) == 1 for values in defaults.values()), defaults


def test_the_board_is_bundled_with_everything_it_imports() -> None:
    folder = "pylos_web/board3d"
    assert of("WORKDIR", "board") == [f"/src/{folder}"]
    copied = {
        os.path.normpath(f"{folder}/{rest.split()[-1]}"): rest.split()[:-1]
        for rest in of("COPY", "board")
    }
    assert [folder] in copied.values()
    for path in (ROOT / folder / "src").rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"""from ["'](\.[^"']+)["']""", text):
            target = (path.parent / name).resolve().relative_to(ROOT)
            top = str(Path(*target.parts[:2]))
            assert copied.get(top) == [top], f"{path.name} imports {target}"


def run_step(stage: str, mark: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """One RUN of the Dockerfile, in a shell of this machine; `pip` only tells its words."""
    (step,) = [rest for rest in of("RUN", stage) if mark in rest]
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    pip = bin_folder / "pip"
    pip.write_text('#!/bin/sh\necho pip "$@"; exit "${PIP_CODE:-0}"\n', encoding="utf-8")
    pip.chmod(0o755)
    (bin_folder / "python").unlink(missing_ok=True)
    (bin_folder / "python").symlink_to(sys.executable)
    for name in ("constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return subprocess.run(
        ["sh", "-c", re.sub(r"--mount=\S+", "", step)],
        cwd=folder,
        env={"PATH": f"{bin_folder}{os.pathsep}{os.defpath}", "TORCH_INDEX": "", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_torch_is_the_ordinary_build_or_the_one_asked_for(tmp_path: Path) -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^torch==(\S+)$", pins, re.MULTILINE)
    install = f"pip install --constraint constraints.txt torch=={version}"
    assert run_step("build", "torch==", tmp_path, TORCH="cuda").stdout.strip() == install
    named = run_step("build", "torch==", tmp_path, TORCH="cpu", TORCH_INDEX="file:///some")
    assert named.stdout.strip() == f"{install}+cpu --extra-index-url file:///some"
    failed = run_step("build", "torch==", tmp_path, TORCH="cpu", PIP_CODE="1")
    assert failed.returncode == 1
    assert f"no torch {version}+cpu: TORCH_INDEX must name" in failed.stderr


def test_the_image_installs_what_trainers_and_web_need(tmp_path: Path) -> None:
    result = run_step("build", "requirements.txt", tmp_path)
    assert "--requirement requirements.txt" in result.stdout, result.stderr
    listed = (tmp_path / "requirements.txt").read_text(encoding="utf-8").split("\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {*project["dependencies"], *extras["train"], *extras["web"]} < set(listed)


def test_no_mirror_and_no_secret_is_baked_in() -> None:
    files = [*map(ROOT.joinpath, ("Dockerfile", "compose.yaml", "compose.cpu.yaml")), ENTRYPOINT]
    for file in files:
        hosts = set(re.findall(r"\w+://([^/:\s'\"]+)", file.read_text(encoding="utf-8")))
        assert hosts <= {"127.0.0.1"}, file
    assert "PIP_INDEX" not in DOCKERFILE
    for _, word, rest in INSTRUCTIONS:
        if word == "RUN" and re.search(r"pip install .*(torch|requirement)|npm ci", rest):
            assert "--mount=type=secret" in rest


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Compose's own tag for "not what the other file said"."""


Loader.add_constructor("!reset", lambda loader, node: "reset")


def compose(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load((ROOT / name).read_text(encoding="utf-8"), Loader)
    return loaded


def filled(text: str) -> str:
    """Variables at their defaults."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_compose_has_trainer_tensorboard_and_web() -> None:
    services = compose("compose.yaml")["services"]
    assert set(services) == {"train", "tensorboard", "web"}
    for name, service in services.items():
        assert service["build"]["target"] in STAGES
        assert set(service["build"]["args"]) <= ARGUMENTS
        assert (ROOT / service["build"]["context"] / "Dockerfile").exists()
        for port in service.get("ports", []):
            assert filled(port).rsplit(":", 1)[1] in EXPOSED
        ends = [volume.split(":", 1)[1] for volume in service["volumes"]]
        assert ends == ["/runs" if name == "train" else "/runs:ro"]
    train = services["train"]
    module, experiment = map(filled, train["command"])
    assert (configs() / TRAINERS[module] / "experiment" / f"{experiment[11:]}.yaml").exists()
    assert train["shm_size"] == "2g"
    assert train["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_compose_without_a_card_asks_for_none() -> None:
    services = compose("compose.cpu.yaml")["services"]
    assert set(services) == set(compose("compose.yaml")["services"])
    assert all(service["build"]["args"] == {"TORCH": "cpu"} for service in services.values())
    assert services["train"]["deploy"] == "reset"
    assert "gpu" not in str(services["train"]["command"])


class Container:
    """A folder that the entry point takes for the container; its programs only tell their words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        (folder / "runs").mkdir()
        (folder / "tmp").mkdir()
        for name in ("python", "tensorboard", "pylos-ppo"):
            self.program(name, f'echo {name} "$@"; env >{folder}/{name}.env')
        self.program("setpriv", f'echo "$@" >{folder}/beside')
        self.program("nvidia-smi", "exit 9")

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.bin}{os.pathsep}{os.defpath}"
        return {"PATH": path, "HOME": str(self.folder), "TMPDIR": str(self.folder / "tmp"), **more}

    def run(self, command: str, **more: str) -> tuple[int, str, str]:
        """Exit code, what the job printed, what the entry point said."""
        result = subprocess.run(
            ["sh", str(ENTRYPOINT), *shlex.split(command)],
            cwd=self.folder,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return result.returncode, result.stdout.strip(), result.stderr

    def see_gpu(self) -> None:
        self.program("nvidia-smi", "echo 'GPU 0: Some Card (UUID: GPU-1)'")

    def lock_runs(self) -> None:
        """Not even root can make a file in /proc."""
        (self.folder / "runs").rmdir()
        (self.folder / "runs").symlink_to("/proc")


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_a_trainer_without_a_gpu_says_so_and_goes_on(container: Container) -> None:
    code, out, said = container.run("trainers.alphazero seed=3")
    assert (code, out) == (0, "python -m trainers.alphazero seed=3")
    assert "no GPU is visible" in said
    assert "--gpus all" in said
    assert "goes on with the CPU" in said


@pytest.mark.parametrize(
    "command",
    [
        "trainers.alphazero experiment=gpu",
        "trainers.ppo device=cuda:0",
        "pylos-ppo experiment=gpu",
        "python -m trainers.ppo experiment=gpu",
        "torchrun --nproc-per-node 2 -m trainers.alphazero experiment=gpu",
    ],
)
def test_a_gpu_that_was_asked_for_and_is_not_there_stops_it(
    container: Container, command: str
) -> None:
    code, out, said = container.run(command)
    assert (code, out) == (1, "")
    assert "no GPU is visible" in said
    assert "stopped: a GPU was asked for" in said


def test_with_a_gpu_nothing_is_said_of_it(container: Container) -> None:
    container.see_gpu()
    code, out, said = container.run("trainers.ppo experiment=gpu", PYLOS_TORCH="cuda")
    assert (code, out) == (0, "python -m trainers.ppo experiment=gpu")
    assert "GPU" not in said


def test_an_image_for_the_cpu_says_that_it_cannot_use_the_gpu(container: Container) -> None:
    container.see_gpu()
    code, _, said = container.run("trainers.ppo", PYLOS_TORCH="cpu")
    assert code == 0
    assert "built with TORCH=cpu" in said
    assert container.run("trainers.ppo experiment=gpu", PYLOS_TORCH="cpu")[0] == 1


def test_the_cpu_by_choice_needs_no_gpu(container: Container) -> None:
    code, out, said = container.run("trainers.alphazero experiment=gpu device=cpu")
    assert (code, out) == (0, "python -m trainers.alphazero experiment=gpu device=cpu")
    assert "GPU" not in said


def test_a_trainer_stops_where_nothing_could_be_saved(container: Container) -> None:
    container.lock_runs()
    code, out, said = container.run("trainers.alphazero")
    assert (code, out) == (1, "")
    assert f"user {os.getuid()} cannot write to {container.folder}/runs (owner " in said
    assert "--user" in said
    assert "stopped: " in said
    assert not (container.folder / "beside").exists(), "TensorBoard was started"


def test_the_check_of_the_volume_leaves_nothing_behind(container: Container) -> None:
    assert container.run("trainers.ppo")[0] == 0
    assert list((container.folder / "runs").iterdir()) == []


@pytest.mark.parametrize("command", ["tensorboard", "pylos_web", "trainers.ppo --help", "true"])
def test_what_only_reads_needs_neither_gpu_nor_volume(container: Container, command: str) -> None:
    container.lock_runs()
    code, _, said = container.run(command)
    assert (code, said) == (0, "")


def test_tensorboard_runs_beside_a_trainer_unless_told_not_to(container: Container) -> None:
    beside = container.folder / "beside"
    _, _, said = container.run("trainers.ppo device=cpu", PYLOS_TENSORBOARD="0")
    assert not beside.exists()
    assert said == ""
    _, _, said = container.run("trainers.ppo device=cpu")
    assert "TensorBoard is on port 6006" in said
    wait_for(beside.exists)
    wait_for(lambda: "--logdir" in beside.read_text(encoding="utf-8"))
    runs = f"--logdir {container.folder}/runs --host 0.0.0.0"
    assert beside.read_text(encoding="utf-8").strip() == f"--pdeathsig TERM tensorboard {runs}"


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs util-linux")
def test_tensorboard_ends_with_the_trainer(container: Container) -> None:
    (container.bin / "setpriv").unlink()
    pid = container.folder / "pid"
    container.program("tensorboard", f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000")
    container.program("python", f"until [ -e {pid} ]; do sleep 0.05; done; exit 5")
    assert container.run("trainers.ppo device=cpu")[0] == 5, "the trainer's own exit code"
    status = Path(f"/proc/{pid.read_text(encoding='utf-8').strip()}/cmdline")
    wait_for(lambda: not status.exists() or not status.read_bytes())


def wait_for(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen")


@pytest.mark.parametrize(
    ("command", "becomes"),
    [
        ("pylos_web", "python -m pylos_web --host 0.0.0.0"),
        ("pylos-web --workers 4", "python -m pylos_web --host 0.0.0.0 --workers 4"),
        ("pylos_web --host=127.0.0.1", "python -m pylos_web --host=127.0.0.1"),
        ("tensorboard", "tensorboard --logdir {}/runs --host 0.0.0.0"),
        ("tensorboard --logdir a --bind_all", "tensorboard --logdir a --bind_all"),
        ("trainers.arena a b", "python -m trainers.arena a b"),
        ("echo 'two  spaces' x", "two  spaces x"),
    ],
)
def test_words_become_a_command(container: Container, command: str, becomes: str) -> None:
    assert container.run(command)[:2] == (0, becomes.format(container.folder))


def variables(container: Container) -> dict[str, str]:
    lines = (container.folder / "python.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.skipif(not Path("/lib64/ld-linux-x86-64.so.2").exists(), reason="x86-64 Linux only")
def test_stored_kernels_are_used_where_the_processor_can(container: Container) -> None:
    stored = {"NUMBA_CPU_FEATURES": ""}
    container.run("trainers.arena", NUMBA_CPU_NAME="x86-64-v2", **stored)
    assert variables(container)["NUMBA_CPU_NAME"] == "x86-64-v2"
    _, _, said = container.run("trainers.arena", NUMBA_CPU_NAME="x86-64-v9", **stored)
    assert "older than x86-64-v9" in said
    assert not {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"} & variables(container).keys()
    container.run("trainers.arena", NUMBA_CPU_NAME="x86-64-v2", PYLOS_CPU="host", **stored)
    assert "NUMBA_CPU_NAME" not in variables(container)


def test_a_user_without_name_and_home_gets_both(container: Container) -> None:
    container.run("trainers.arena", HOME="/nowhere")
    assert variables(container)["HOME"] == str(container.folder / "tmp")
    assert variables(container)["USER"] == "pylos"


def documented() -> list[list[str]]:
    """Every `docker run` of README and docs, as words."""
    pages = [ROOT / "README.md", ROOT / "docs" / "docker.md"]
    text = "\n".join(page.read_text(encoding="utf-8").replace("\\\n", " ") for page in pages)
    return [shlex.split(line, comments=True) for line in re.findall(r"^docker run .*", text, re.M)]


def test_the_documented_commands_fit_the_image() -> None:
    commands = documented()
    assert len(commands) >= 4
    for words in commands:
        place = next(place for place, word in enumerate(words) if word in ("pylos", "pylos-web"))
        options, command = words[:place], words[place + 1 :]
        for flag, value in itertools.pairwise(options):
            if flag == "-p":
                assert value.rsplit(":", 1)[1] in EXPOSED
            if flag == "-v":
                assert value.split(":")[1] == "/runs"
        if command and command[0] in TRAINERS:
            assert "-v" in options, words
            for word in command[1:]:
                if word.startswith("experiment="):
                    folder = configs() / TRAINERS[command[0]] / "experiment"
                    assert (folder / f"{word[11:]}.yaml").exists(), words
    text = str(commands)
    for needed in ("trainers.alphazero", "trainers.ppo", "tensorboard", "pylos-web", "--gpus"):
        assert needed in text
