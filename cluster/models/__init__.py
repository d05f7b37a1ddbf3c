"""Models served by vLLM through ``ray.serve.llm``, in an environment and a Ray of their own."""
