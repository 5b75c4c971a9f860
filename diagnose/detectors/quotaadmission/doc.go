// Package quotaadmission finds pods that wait at their creation until they are
// counted against resource quotas.
package quotaadmission
