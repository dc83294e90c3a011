"""An inference pipeline: stages of their own serving stacks, and one endpoint in front of them."""
