#!/bin/sh
# The entry point of the image tensorflow/serving, where manifests name it as their command.
exec /opt/tfs-proxy/bin/tfs-proxy tensorflow-serving "$@"
