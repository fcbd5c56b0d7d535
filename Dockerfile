# The course for Binder and JupyterHub: the tested versions, with PyTorch's CPU build.
FROM python:3.12-slim-bookworm
# Binder sets both, and a hub needs its own major version of jupyterhub.
ARG NB_USER=jovyan
ARG NB_UID=1000
ARG JUPYTERHUB=5
RUN useradd --create-home --uid ${NB_UID} ${NB_USER}
COPY . /srv/attention-course
WORKDIR /srv/attention-course
ENV PIP_CONSTRAINT=/srv/attention-course/constraints.txt PIP_NO_CACHE_DIR=1
RUN python install.py --here --cpu \
    && python -m pip install "jupyterhub~=${JUPYTERHUB}.0" \
    && chown -R ${NB_USER} .
USER ${NB_USER}
EXPOSE 8888
CMD ["attention-course", "start", ".", "--ip=0.0.0.0", "--no-browser"]
