"""The workers' part of the Open Inference Protocol (KServe v2) over REST."""
