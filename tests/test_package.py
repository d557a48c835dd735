"""The package as a whole: who imports whom, what importing costs, the kernel cache, the wheel."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import pylos_env

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pylos_env"

# The rooms of the house, in the order of the data. A module may import what stands above it, never
# what stands below: agents know positions and no environment; environments may ask agents to play.
ROOMS = [
    "errors",
    "_jit",
    "geometry",
    "options",
    "rules",
    "kernel",
    "notation",
    "position",
    "record",
    "observation",
    "batch",
    "testing",
    "oracle.board",
    "oracle.passes",
    "oracle.table",
    "oracle.labels",
    "oracle.query",
    "oracle",
    "oracle.solve",
    "agents.base",
    "agents.features",
    "agents.random",
    "agents.rule_based",
    "agents.alphabeta",
    "agents.perfect",
    "agents",
    "oracle.measure",
    "render.scene",
    "render.board",
    "render.picture",
    "render",
    "pylos_v0",
    "single",
    "selfplay",
    "vector",
    "",  # the package's own __init__
]
NEEDS = {"gymnasium", "llvmlite", "numba", "numpy", "pettingzoo"}  # llvmlite is part of numba
OPTIONAL = {"pygame"}


# The trainers stand on the whole of pylos_env; the same order holds among them.
TRAINER_ROOMS = [
    "paths",
    "files",
    "manifest",
    "rng",
    "checkpoint_file",
    "checkpoints",
    "search.tree",
    "search.roots",
    "search.inner",
    "search.batched",
    "search.memory",
    "search.pipeline",
    "search.single",
    "search",
    "pattern_rows",
    "patterns",
    "waves",
    "symmetric",
    "network",
    "products",
    "pattern_kernel",
    "symmetric_kernel",
    "evaluator",
    "distributed",
    "settings",
    "running",
    "command",
    "entry",
    "players",
    "export.model",
    "export.onnx_file",
    "export.card",
    "export.cli",
    "export.__main__",
    "export",
    "inference",
    "ratings",
    "arena.openings",
    "arena.games",
    "arena.scores",
    "arena.sprt",
    "arena.results",
    "arena.contest",
    "arena.plot",
    "arena",
    "arena.cli",
    "arena.__main__",
    "metrics.optional",
    "metrics.tags",
    "metrics.events",
    "metrics.csv_file",
    "metrics.games_folder",
    "metrics.tensorboard",
    "metrics.console",
    "metrics.live",
    "metrics.weights_biases",
    "metrics",
    "play.moves",
    "play.game",
    "play.advice",
    "play.session",
    "play.terminal",
    "play",
    "play.__main__",
    "alphazero.config",
    "alphazero.selfplay",
    "alphazero.targets",
    "alphazero.replay",
    "alphazero.feed",
    "alphazero.policy_loss",
    "alphazero.muon",
    "alphazero.learner",
    "alphazero.evaluate",
    "alphazero.workers",
    "alphazero.tasks",
    "alphazero.cluster",
    "alphazero.ray_pool",
    "alphazero.backends",
    "alphazero.reporting",
    "alphazero.beginning",
    "alphazero.ladder",
    "alphazero.train",
    "alphazero.cli",
    "alphazero.__main__",
    "alphazero",
    "ppo.config",
    "ppo.league",
    "ppo.games",
    "ppo.ppo",
    "ppo.evaluate",
    "ppo.train",
    "ppo.cli",
    "ppo.__main__",
    "ppo",
    "",
]
TRAINERS_NEED = {
    "hydra",
    "matplotlib",
    "numpy",
    "omegaconf",
    "rich",
    "safetensors",
    "scipy",
    "tensorboard",
    "torch",
}
EXPORT_NEEDS = {"onnx", "onnxruntime"}
TRAINERS_MAY_NEED = {"alphazero.ray_pool": {"numba", "ray"}}
WITHOUT_TORCH = ("search", "arena", "play", "ratings", "manifest", "files")


# The web player stands on both.
WEB_ROOMS = [
    "messages",
    "thinking",
    "levels",
    "analysis",
    "table",
    "sessions",
    "connection",
    "opening",
    "security",
    "server",
    "cli",
    "__main__",
    "",
]
WEB_NEEDS = {"fastapi", "numpy", "pydantic", "starlette", "uvicorn", "pylos_env", "trainers"}


def modules_of(package: str) -> dict[str, Path]:
    folder = ROOT / package
    found = {}
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        found[name.removesuffix("__init__").removesuffix(".")] = path
    return found


def imports_of(path: Path) -> set[str]:
    """Full names of everything a file imports, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = modules_of("pylos_env")
TRAINERS = modules_of("trainers")
WEB = modules_of("pylos_web")


def test_every_module_has_its_place_in_the_house() -> None:
    assert sorted(MODULES) == sorted(ROOMS)
    assert sorted(TRAINERS) == sorted(TRAINER_ROOMS)
    assert sorted(WEB) == sorted(WEB_ROOMS)


def check_direction(package: str, rooms: list[str], name: str, path: Path, needs: set[str]) -> None:
    """Inside its package a module imports only what stands above it, outside only what it may."""
    allowed = {f"{package}.{room}" for room in rooms[: rooms.index(name)]}
    for imported in imports_of(path):
        top = imported.partition(".")[0]
        if top != package:
            assert top in needs | sys.stdlib_module_names, f"{name} imports {imported}"
            continue
        module = imported if imported in {f"{package}.{room}" for room in rooms} else ""
        module = module or imported.rpartition(".")[0]
        assert module in allowed, f"{name} imports {imported}"


@pytest.mark.parametrize("name", MODULES)
def test_modules_import_only_what_stands_above_them(name: str) -> None:
    check_direction("pylos_env", ROOMS, name, MODULES[name], NEEDS | OPTIONAL)


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_import_only_what_stands_above_them(name: str) -> None:
    needs = TRAINERS_NEED | {"pylos_env"} | TRAINERS_MAY_NEED.get(name, set())
    if name.startswith("export."):
        needs |= EXPORT_NEEDS
    if name.partition(".")[0] in WITHOUT_TORCH:
        needs -= {"torch", "tensorboard", "safetensors"}
    check_direction("trainers", TRAINER_ROOMS, name, TRAINERS[name], needs)


@pytest.mark.parametrize("name", WEB)
def test_the_web_player_imports_only_what_stands_above_it(name: str) -> None:
    check_direction("pylos_web", WEB_ROOMS, name, WEB[name], WEB_NEEDS)


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = set(listed["tool"]["setuptools"]["packages"])
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("pylos_env", "pylos_web", "trainers")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert packages == found | {"trainers.configs"}


def test_nobody_imports_scripts_or_examples() -> None:
    for folder in ("pylos_env", "pylos_web", "trainers", "tests", "scripts", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            tops = {name.partition(".")[0] for name in imports_of(path)}
            assert not tops & {"scripts", "examples"}, path


def run_python(code: str, **env: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_compiles_nothing_and_loads_nothing_heavy() -> None:
    out = run_python(
        """
        import sys
        from numba.core import event

        class Compiled(event.Listener):
            def on_start(self, event): print("compiled", event.data)
            def on_end(self, event): pass

        event.register("numba:compile", Compiled())
        import pylos_env
        print([name for name in ("torch", "hydra", "pygame", "matplotlib") if name in sys.modules])
        """
    )
    assert out == "[]"


CACHE_CODE = """
    import sys
    sys.path.insert(0, {folder!r})
    from numba.core import event
    compiled = []

    class Listener(event.Listener):
        def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
        def on_end(self, event): pass

    event.register("numba:compile", Listener())
    from {package} import user
    print(user.answer(1), len(compiled))
"""


def test_an_edit_in_another_file_is_never_served_from_the_cache(tmp_path: Path) -> None:
    """Numba's own cache fails this test: it looks at the caller's file alone."""
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text(
        "from pylos_env._jit import jit\n@jit\ndef helper(x):\n    return x + 10\n"
    )
    (package / "user.py").write_text(
        "from pylos_env._jit import jit\nfrom kernels.helper import helper\n"
        "@jit\ndef answer(x):\n    return helper(x) * 2\n"
    )
    code = CACHE_CODE.format(folder=str(tmp_path), package="kernels")
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run_python(code, **cache) == "22 2"
    assert run_python(code, **cache) == "22 0", "the second process loads what the first compiled"
    helper = package / "helper.py"
    helper.write_text(helper.read_text().replace("+ 10", "+ 20"))
    assert run_python(code, **cache) == "42 2"
    for path in (tmp_path / "cache").rglob("*.nbc"):  # a damaged file is compiled anew
        path.write_bytes(path.read_bytes()[:-7])
    assert run_python(code, **cache) == "42 2"


def test_cached_kernels_play_as_compiled_ones(tmp_path: Path) -> None:
    code = """
        from pylos_env import agents, testing
        game = testing.random_game("mature", 3)
        agent = agents.make("alphabeta:3", seed=1)
        print(game.actions, [agent.act(p) for p in list(game.positions())[:-1]])
        print(testing.perft(game.start, 5, whole_turns=True))
    """
    first = run_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert run_python(code, NUMBA_CACHE_DIR=str(tmp_path)) == first


def test_it_works_where_no_cache_can_be_written(tmp_path: Path) -> None:
    copy = tmp_path / "site"
    shutil.copytree(PACKAGE, copy / "pylos_env", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
        import sys
        sys.path.insert(0, {str(copy)!r})
        from numba.core import caching
        def refuse(self): raise PermissionError("read-only")
        caching._CacheLocator.ensure_cache_path = refuse
        import pylos_env
        assert pylos_env.__file__.startswith({str(copy)!r})
        print(pylos_env.Position.start().play(3).legal_actions()[:3])
    """
    assert run_python(code) == "[0, 1, 2]"
    assert not list(copy.rglob("*.nbc"))


def test_a_full_disk_costs_only_the_cache(tmp_path: Path) -> None:
    code = """
        import errno, pathlib
        def full(self, data): raise OSError(errno.ENOSPC, "no space left")
        pathlib.Path.write_bytes = full
        import pylos_env
        print(pylos_env.Position.start().play(3).legal_actions()[:3])
    """
    assert run_python(code, NUMBA_CACHE_DIR=str(tmp_path)) == "[0, 1, 2]"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_processes_that_compile_at_once_do_not_mix_up_their_kernels(tmp_path: Path) -> None:
    """Numba's own numbered files leave this open: two signatures might claim one number."""
    code = """
        import sys
        import numpy as np
        from pylos_env import agents, Position, Rules
        agent = agents.make("random")
        kinds = [np.array([0, 0]), np.array([0, 0, 0])[::2], np.array([0, 0], dtype=np.int32)]
        for packed in kinds[int(sys.argv[1]):] + kinds[:int(sys.argv[1])]:
            print(agent.act_batch(packed, Rules(), np.array([7, 8])).tolist())
    """
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]

    def run(count: int) -> list[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        children = [
            subprocess.Popen([*command, str(index % 3)], env=env, **pipes)  # type: ignore[call-overload]
            for index in range(count)
        ]
        results = [child.communicate() for child in children]
        assert all(child.returncode == 0 for child in children), results
        return [out for out, _ in results]

    first, second = run(3), run(3)
    assert set(first + second) == {first[0]}
    assert len(set(first[0].splitlines())) == 1


def test_the_changelog_knows_this_version() -> None:
    assert f"## {pylos_env.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    """Built, installed without this checkout in sight, and played from an empty folder."""
    source = tmp_path / "source"
    ignored = (".*", "__pycache__", "build", "*.egg-info", "runs", "node_modules")
    ignore = shutil.ignore_patterns(*ignored)
    shutil.copytree(ROOT, source, ignore=ignore)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    wheels = tmp_path / "wheels"
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    target = tmp_path / "site"
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(target), str(wheel)],
        check=True,
        capture_output=True,
    )
    names = {path.name for path in target.iterdir() if not path.name.endswith(".dist-info")}
    assert names - {"bin"} == {"pylos_env", "pylos_web", "trainers"}
    assert (target / "pylos_env" / "py.typed").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import pylos_env, gymnasium\n"
            "pylos_env.oracle.benchmark('random', every=1000)\n"
            "assert pylos_env.__file__.startswith(sys.argv[1]), pylos_env.__file__\n"
            "env = gymnasium.make('pylos_env/Pylos-v0', opponent='rule_based')\n"
            "print(env.reset(seed=1)[0].shape, env.step(3)[1])\n"
            "from starlette.testclient import TestClient\n"
            "from pylos_web.levels import Levels\n"
            "from pylos_web.server import create_app\n"
            "page = TestClient(create_app(Levels.load(None, 8)), base_url='http://127.0.0.1')\n"
            "paths = '/', '/static/main.js', '/static/dist/board3d.js', '/static/none.js'\n"
            "print([page.get(path).status_code for path in paths])\n"
            "print(page.get('/checkpoints').json()['board3d'])",
            str(target),
        ],
        cwd=empty,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    played, page, board3d = out.stdout.strip().split("\n") if out.stdout else ("", "", "")
    assert played == "(33,) 0.0", out.stderr
    # the wheel holds the 3D board where it was built before (make web); without it the page is flat
    built = (ROOT / "pylos_web" / "static" / "dist" / "board3d.js").exists()
    assert page == f"[200, 200, {200 if built else 404}, 404]", out.stderr
    assert board3d == str(built)


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("alphazero", "hydra", "train"),
        ("ppo", "hydra", "train"),
        ("export", "safetensors", "export"),
        ("web", "uvicorn", "web"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    command: str, missing: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['x', '--help']; "
        f"from trainers import entry; entry.{command}()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"pylos-{command} needs the package '{missing}': pip install 'pylos-env[{extra}]'\n"
    )
