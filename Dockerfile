# The server, on a volume. See docs/http.md for how to run it.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /diarist && /diarist/bin/pip install --no-cache-dir ".[serve]"

FROM python:3.13-slim
# A user of its own, who can write the volume and nothing else.
RUN useradd --system --uid 10001 --create-home diarist && install -d -o diarist -m 0700 /memory
COPY --from=build /diarist /diarist
ENV PATH=/diarist/bin:$PATH PYTHONUNBUFFERED=1 DIARIST_MEMORY=/memory
USER diarist
VOLUME /memory
EXPOSE 8787
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8787/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["diarist"]
CMD ["serve", "--host", "0.0.0.0"]
