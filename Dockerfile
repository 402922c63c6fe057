# The image that config/deploy names, for amd64 and arm64:
#
#   docker build --tag quay.io/pusher/navarchos:0.1.0 .
#
# It runs the manager, so the flags published in 2019 are arguments of the image as
# they were then. Other commands: docker run --entrypoint navarchos IMAGE sandbox ...
ARG PYTHON_VERSION=3.13

# Dependencies are a stage and a layer for themselves: another change of the sources needs
# none of them again.
FROM python:${PYTHON_VERSION}-slim AS dependencies
# Two names for one thing: newer pip asks for the second when it builds wheels.
ENV PIP_CONSTRAINT=/build/constraints.txt \
    PIP_BUILD_CONSTRAINT=/build/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY constraints.txt setup.cfg ./
RUN python -c 'import configparser; file = configparser.RawConfigParser(); file.read("setup.cfg"); \
    print(file["options"]["install_requires"])' > requirements.txt
# Without pip: nothing is ever installed later. With bytecode: the root file system
# is read-only where this runs, and compiling at each start would take seconds.
RUN python -m venv --without-pip /opt/navarchos \
    && pip --python /opt/navarchos/bin/python install --quiet --compile --requirement requirements.txt

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --quiet --no-deps --wheel-dir dist . \
    && pip --python /opt/navarchos/bin/python install --quiet --no-deps --compile --root /installed dist/*.whl

FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="navarchos" \
      org.opencontainers.image.description="Replaces the nodes of a Kubernetes cluster, group by group" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=dependencies /opt/navarchos /opt/navarchos
COPY --from=build /installed/opt/navarchos /opt/navarchos
ENV PATH=/opt/navarchos/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that the kubelet can see that it is not root.
USER 65532:65532
RUN ["navarchos", "manager", "--version"]
EXPOSE 8080 8081
ENTRYPOINT ["navarchos", "manager"]
