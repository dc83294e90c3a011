"""What is judged: an address, a command or an image, started as SageMaker does and stopped again."""
