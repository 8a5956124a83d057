# The service: docker build -t relprop . && docker run --rm -p 8080:8080 -e RELPROP_TOKEN=secret relprop
# Your own model: docker run ... -v /path/to/model:/models/mine:ro relprop mine=/models/mine
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE constraints.txt ./
COPY src src
# torch without CUDA; for a GPU leave out the extra index
RUN python -m venv /opt/relprop \
 && /opt/relprop/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt ".[serve,graph]"

FROM python:3.11-slim
COPY --from=build /opt/relprop /opt/relprop
RUN useradd --create-home relprop
USER relprop
ENV PATH=/opt/relprop/bin:$PATH HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
EXPOSE 8080
HEALTHCHECK --interval=30s --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/v2/health/live')"]
ENTRYPOINT ["relprop", "serve", "--host", "0.0.0.0", "--port", "8080"]
CMD ["sentiment", "pets", "molecules"]
