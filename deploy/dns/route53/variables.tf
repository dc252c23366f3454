variable "zone_id" {
  description = "The hosted zone that the name belongs to."
  type        = string
}

variable "name" {
  description = "What clients ask for, such as api.example.com."
  type        = string
}

variable "check_name" {
  description = "The name under which every region's front answers /readyz over HTTPS, and nothing else of the admin listener, such as ready.example.com. It needs no record: each region is asked at its own address."
  type        = string
}

variable "regions" {
  description = "Per region of ring.toml: the AWS region whose latency stands for it, and the public addresses of its front."
  type = map(object({
    aws_region = string
    addresses  = list(string)
  }))

  validation {
    condition     = alltrue([for region in values(var.regions) : length(region.addresses) > 0])
    error_message = "A region without an address can answer nobody."
  }
}

variable "ttl" {
  description = "How long resolvers keep an answer, in seconds. With the checks below, clients leave a dead region after about this much and half a minute."
  type        = number
  default     = 30
}
