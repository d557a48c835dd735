# Trainers, TensorBoard and the web player. docs/docker.md explains the arguments.
#
#   docker build -t pylos .                         training, with torch for CUDA
#   docker build -t pylos-web --target web .        the web player: the same layers, another command
#   docker build -t pylos --build-arg TORCH=cpu --build-arg TORCH_INDEX=... .
#
# The secrets `pip` and `npmrc` are optional: settings of a package mirror, which stay out of the
# image (docker build --secret id=pip,src=pip.conf).

# Debian or Ubuntu with Python 3.11 or newer and its venv. It needs no CUDA: torch brings its own.
ARG BASE=python:3.11-slim-bookworm
ARG NODE_BASE=node:22-bookworm-slim


# The 3D board. Node stays behind; the bundle goes on.
FROM ${NODE_BASE} AS board
WORKDIR /src/pylos_web/board3d
COPY pylos_web/board3d/package.json pylos_web/board3d/package-lock.json ./
RUN --mount=type=secret,id=npmrc \
    NPM_CONFIG_USERCONFIG=/run/secrets/npmrc npm ci --no-fund --no-audit
COPY pylos_web/board3d ./
COPY pylos_web/static ../static
RUN npm run build


# Python packages, largest and least often changed first, then the compiled kernels.
FROM ${BASE} AS build
WORKDIR /src
RUN python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11) and "BASE needs Python 3.11")' \
    && python3 -m venv /opt/pylos
ENV PATH=/opt/pylos/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY constraints.txt pyproject.toml ./

# cuda: the build of the ordinary index. Else a named build, such as cpu, from TORCH_INDEX.
ARG TORCH=cuda
ARG TORCH_INDEX=
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    version="$(sed -n 's/^torch==//p' constraints.txt)" \
    && if [ "$TORCH" != cuda ]; then version="$version+$TORCH"; fi \
    && if ! pip install --constraint constraints.txt "torch==$version" \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}; \
    then echo "no torch $version: TORCH_INDEX must name an index that has it" >&2; exit 1; fi

RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
extras = project["optional-dependencies"]; \
print(*project["dependencies"], *extras["train"], *extras["web"], "setuptools", sep="\n")' \
        >requirements.txt \
    && pip install --constraint constraints.txt --requirement requirements.txt

# .dockerignore lets nothing through but the sources
COPY . ./
COPY --from=board /src/pylos_web/static/dist pylos_web/static/dist
RUN pip install --no-deps --no-build-isolation --no-index .

# Kernels are stored for one kind of processor, not for the one that builds: the image is to be
# used elsewhere. Other architectures: generic.
ARG KERNEL_CPU=x86-64-v3
ENV NUMBA_CACHE_DIR=/opt/pylos/kernels NUMBA_CPU_NAME=${KERNEL_CPU} NUMBA_CPU_FEATURES=
RUN python docker/warm.py


FROM ${BASE} AS runtime
ARG TORCH=cuda
ARG USER_ID=1000
# torch.compile calls a C compiler, and is used on CUDA only. Packages of the distribution carry no
# versions here: BASE decides which there are.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && if [ "$TORCH" != cpu ]; then \
        apt-get install --yes --no-install-recommends gcc libc6-dev; \
    fi \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid "$USER_ID" pylos \
    && useradd --uid "$USER_ID" --gid "$USER_ID" --create-home pylos \
    && install --directory --owner=pylos --group=pylos --mode=1777 /runs
COPY --from=build /opt/pylos /opt/pylos
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/pylos-entrypoint

ARG KERNEL_CPU=x86-64-v3
ENV PATH=/opt/pylos/bin:$PATH \
    HOME=/home/pylos \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/opt/pylos/kernels \
    NUMBA_CPU_NAME=${KERNEL_CPU} \
    NUMBA_CPU_FEATURES= \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYLOS_TORCH=${TORCH}
EXPOSE 8000 6006
# The trainers write to runs/, seen from here.
WORKDIR /
USER ${USER_ID}:${USER_ID}
ENTRYPOINT ["tini", "-s", "--", "pylos-entrypoint"]

ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Pylos-Env" \
      org.opencontainers.image.description="The board game Pylos: self-play training and web player" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"


FROM runtime AS web
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
CMD ["pylos_web"]


FROM runtime AS train
VOLUME /runs
CMD ["trainers.alphazero"]
