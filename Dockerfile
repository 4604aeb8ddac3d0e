# xflow in a container: docker build -t xflow . && docker run --rm -v "$PWD:/work" xflow IN OUT
FROM python:3.12-slim
COPY . /source
RUN pip install --no-cache-dir "/source[recheck]" && rm -rf /source
# What was measured is kept where a volume may be mounted, so that the next run is shorter.
ENV XFLOW_CACHE=/cache/costs.sqlite
RUN mkdir /cache && chmod 777 /cache
WORKDIR /work
ENTRYPOINT ["xflow"]
