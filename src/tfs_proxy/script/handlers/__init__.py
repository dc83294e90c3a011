"""AWS's TensorFlow contract: ``handler``, ``input_handler`` and ``output_handler``."""
