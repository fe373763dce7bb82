# rescore, lm_zoo and asr on CPUs, without k2:
#   docker build -t rescore .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/work" rescore sample sample
FROM python:3.11-slim-bookworm AS build

# KenLM is compiled.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential cmake \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/rescore
ENV PATH=/opt/rescore/bin:$PATH
# PyTorch's own index has wheels without CUDA, a tenth of the size.
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
COPY . /src
RUN pip install --no-cache-dir "/src[asr,ngram,pandas,text]"

FROM python:3.11-slim-bookworm

RUN useradd --create-home --uid 1000 rescore
COPY --from=build /opt/rescore /opt/rescore
ENV PATH=/opt/rescore/bin:$PATH
USER rescore
WORKDIR /work
ENTRYPOINT ["rescore"]
CMD ["--help"]
