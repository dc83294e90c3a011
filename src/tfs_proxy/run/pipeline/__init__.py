"""An inference pipeline: stages with serving stacks of their own, and one endpoint in front of them."""
